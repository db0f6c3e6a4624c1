from django.db import migrations, models


class Migration(migrations.Migration):
    # The index is built beside a table in use.
    atomic = False

    dependencies = [("accounts", "0033_emails_have_one_form")]

    operations = [
        migrations.SeparateDatabaseAndState(
            database_operations=[
                migrations.RunSQL(
                    "CREATE UNIQUE INDEX CONCURRENTLY user_one_mailbox_is_one_person"
                    " ON accounts_user (email_form) WHERE email_form IS NOT NULL",
                    "DROP INDEX CONCURRENTLY user_one_mailbox_is_one_person",
                )
            ],
            state_operations=[
                migrations.AddConstraint(
                    model_name="user",
                    constraint=models.UniqueConstraint(
                        condition=models.Q(("email_form__isnull", False)),
                        fields=("email_form",),
                        name="user_one_mailbox_is_one_person",
                    ),
                )
            ],
        ),
    ]
