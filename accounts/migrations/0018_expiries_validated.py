from django.contrib.postgres.operations import ValidateConstraint
from django.db import migrations


class Migration(migrations.Migration):
    # Rows are looked through while they can be written.
    atomic = False

    dependencies = [("accounts", "0017_token_expiry_is_readable")]

    operations = [
        ValidateConstraint(model_name="session", name="session_expiry_is_readable"),
        ValidateConstraint(model_name="refreshtoken", name="token_expiry_is_readable"),
    ]
