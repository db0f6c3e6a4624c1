from django.contrib.postgres.operations import ValidateConstraint
from django.db import migrations


class Migration(migrations.Migration):
    """By itself, so that licences can be written to while their rows are looked through."""

    dependencies = [("licensing", "0007_instants_are_readable")]

    operations = [ValidateConstraint(model_name="licence", name="licence_instants_are_readable")]
