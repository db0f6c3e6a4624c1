from django.contrib.postgres.operations import ValidateConstraint
from django.db import migrations


class Migration(migrations.Migration):
    """Validates the constraint for existing rows."""

    atomic = False

    dependencies = [("usage", "0018_cache_writes")]

    operations = [
        ValidateConstraint(model_name="usagerecord", name="usage_tokens_not_below_zero"),
    ]
