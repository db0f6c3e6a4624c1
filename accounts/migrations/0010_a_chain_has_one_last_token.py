from django.contrib.postgres.operations import ValidateConstraint
from django.db import migrations, models


class Migration(migrations.Migration):
    # The index is built beside a table in use, and rows are looked through while they can be written.
    atomic = False

    dependencies = [("accounts", "0009_sessions_know_from_where")]

    operations = [
        ValidateConstraint(model_name="refreshtoken", name="token_replacement_has_a_moment"),
        ValidateConstraint(model_name="refreshtoken", name="token_box_ends_with_its_token"),
        migrations.SeparateDatabaseAndState(
            database_operations=[
                migrations.RunSQL(
                    "CREATE UNIQUE INDEX CONCURRENTLY token_is_the_last_of_its_chain"
                    " ON accounts_refreshtoken (session_id)"
                    " WHERE replaced_at IS NULL AND revoked_at IS NULL",
                    "DROP INDEX CONCURRENTLY token_is_the_last_of_its_chain",
                )
            ],
            state_operations=[
                migrations.AddConstraint(
                    model_name="refreshtoken",
                    constraint=models.UniqueConstraint(
                        condition=models.Q(("replaced_at", None), ("revoked_at", None)),
                        fields=("session",),
                        name="token_is_the_last_of_its_chain",
                    ),
                )
            ],
        ),
    ]
