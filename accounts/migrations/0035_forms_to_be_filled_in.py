from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    # The index is built beside a table in use.
    atomic = False

    dependencies = [("accounts", "0034_one_mailbox_is_one_person")]

    operations = [
        AddIndexConcurrently(
            model_name="user",
            index=models.Index(
                condition=models.Q(("email_form", None), ("erased_at", None)),
                fields=["id"],
                name="user_without_email_form",
            ),
        ),
    ]
