from django.contrib.postgres.indexes import GinIndex
from django.contrib.postgres.operations import AddIndexConcurrently
from django.contrib.postgres.search import SearchVector
from django.db import migrations, models

WORDS = SearchVector(
    *(
        models.Func(
            models.F(name),
            models.Value("@._-"),
            models.Value("    "),
            function="translate",
            output_field=models.TextField(),
        )
        for name in ("actor", "target", "reason")
    ),
    config="simple",
)


class Migration(migrations.Migration):
    """Reasons and parts of names are found by index, without an extension of PostgreSQL."""

    # Building an index beside a service that writes takes no transaction.
    atomic = False

    dependencies = [("accounts", "0028_sessions_name_their_program")]

    operations = [
        AddIndexConcurrently("auditevent", GinIndex(WORDS, name="audit_by_words")),
    ]
