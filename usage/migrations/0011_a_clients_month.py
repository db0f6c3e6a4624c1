from django.contrib.postgres.operations import AddIndexConcurrently, RemoveIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    """A client's month is summed from an index alone. Built beside a table in use, which does not wait."""

    atomic = False

    dependencies = [
        ("usage", "0010_numbers_validated"),
    ]

    operations = [
        AddIndexConcurrently(
            model_name="usagerecord",
            index=models.Index(
                fields=["client_id", "period"], include=["cost"], name="usage_by_client_and_month"
            ),
        ),
        RemoveIndexConcurrently(model_name="usagerecord", name="usage_by_client"),
    ]
