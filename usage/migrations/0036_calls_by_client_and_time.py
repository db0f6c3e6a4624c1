from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    """The list of calls reads a client's by time. Built beside a table in use."""

    atomic = False

    dependencies = [("usage", "0035_failures_and_first_output")]

    operations = [
        AddIndexConcurrently(
            model_name="usagerecord",
            index=models.Index(fields=["client_id", "opened_at"], name="usage_by_client_and_time"),
        ),
    ]
