from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    """The calls of a client's month with abandoned attempts are found by an index. Built beside a table in use."""

    atomic = False

    dependencies = [
        ("usage", "0020_attempts_on_the_record"),
    ]

    operations = [
        AddIndexConcurrently(
            model_name="usagerecord",
            index=models.Index(
                fields=["client_id", "period"],
                condition=models.Q(("abandoned__isnull", False)),
                name="usage_with_abandoned",
            ),
        ),
    ]
