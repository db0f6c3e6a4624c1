from django.contrib.postgres.operations import ValidateConstraint
from django.db import migrations


class Migration(migrations.Migration):
    """By itself, so that people can be written to while their rows are looked through."""

    dependencies = [("accounts", "0007_people_are_invited_and_erased")]

    operations = [ValidateConstraint(model_name="user", name="user_erased_is_nobody")]
