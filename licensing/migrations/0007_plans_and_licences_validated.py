from django.contrib.postgres.operations import ValidateConstraint
from django.db import migrations


class Migration(migrations.Migration):
    # Rows are looked through while they can be written.
    atomic = False

    dependencies = [("licensing", "0006_licences_are_readable")]

    operations = [
        ValidateConstraint(model_name="plan", name="plan_entitlements_are_a_list"),
        ValidateConstraint(model_name="licence", name="licence_entitlements_are_a_list"),
        ValidateConstraint(model_name="licence", name="licence_instants_are_readable"),
    ]
