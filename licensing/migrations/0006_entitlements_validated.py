from django.contrib.postgres.operations import ValidateConstraint
from django.db import migrations


class Migration(migrations.Migration):
    # Rows are looked through while they can be written.
    atomic = False

    dependencies = [("licensing", "0005_entitlements_are_lists")]

    operations = [
        ValidateConstraint(model_name="plan", name="plan_entitlements_are_a_list"),
        ValidateConstraint(model_name="licence", name="licence_entitlements_are_a_list"),
    ]
