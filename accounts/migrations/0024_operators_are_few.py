from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    """Operators are listed, and owners counted, without reading the rows of all people."""

    # Building an index beside a service that writes takes no transaction.
    atomic = False

    dependencies = [("accounts", "0023_operators_belong_to_no_client")]

    operations = [
        AddIndexConcurrently(
            model_name="user",
            index=models.Index(
                fields=("email",), condition=models.Q(is_staff=True), name="user_operators"
            ),
        ),
    ]
