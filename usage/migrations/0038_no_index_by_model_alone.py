from django.contrib.postgres.operations import RemoveIndexConcurrently
from django.db import migrations


class Migration(migrations.Migration):
    """The index by model and time serves what this one did, for processes of the release before, too."""

    atomic = False

    dependencies = [("usage", "0037_calls_by_model_and_time")]

    operations = [
        RemoveIndexConcurrently(model_name="usagerecord", name="usage_by_model"),
    ]
