from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    """An app that has not been heard of for long is found at once. Built beside intake, which does not wait."""

    atomic = False

    dependencies = [("telemetry", "0001_initial")]

    operations = [
        AddIndexConcurrently(
            model_name="event",
            index=models.Index(fields=["app", "received_at"], name="telemetry_by_app"),
        ),
    ]
