from django.contrib.postgres.operations import ValidateConstraint
from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("usage", "0002_checkpoints")]

    operations = [
        ValidateConstraint(model_name="usagerecord", name="usage_checkpoint_is_whole"),
    ]
