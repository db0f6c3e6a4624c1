from django.contrib.postgres.operations import ValidateConstraint
from django.db import migrations


class Migration(migrations.Migration):
    # Rows are looked through while they can be written.
    atomic = False

    dependencies = [("accounts", "0012_one_time_passwords")]

    operations = [
        ValidateConstraint(model_name="passwordlink", name="password_link_is_one_of_three"),
    ]
