from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    """The list of calls reads a model's by time. Built beside a table in use."""

    atomic = False

    dependencies = [("usage", "0036_calls_by_client_and_time")]

    operations = [
        AddIndexConcurrently(
            model_name="usagerecord",
            index=models.Index(fields=["model", "opened_at"], name="usage_by_model_and_time"),
        ),
    ]
