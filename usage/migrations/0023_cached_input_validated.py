from django.contrib.postgres.operations import ValidateConstraint
from django.db import migrations


class Migration(migrations.Migration):
    """Validates the constraints for existing rows."""

    atomic = False

    dependencies = [("usage", "0022_cached_input_counts_by_its_share")]

    operations = [
        ValidateConstraint(model_name="usagerecord", name="usage_capped_input_is_a_part"),
        ValidateConstraint(model_name="usagerecord", name="usage_tokens_not_below_zero"),
    ]
