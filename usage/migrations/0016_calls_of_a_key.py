from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    """A key's calls of a month are found by an index of their own. Built beside a table in use."""

    atomic = False

    dependencies = [
        ("usage", "0015_calls_may_have_a_key"),
    ]

    operations = [
        AddIndexConcurrently(
            model_name="usagerecord",
            index=models.Index(
                fields=["key_id", "period"],
                condition=models.Q(("key_id__isnull", False)),
                name="usage_by_key_and_month",
            ),
        ),
    ]
