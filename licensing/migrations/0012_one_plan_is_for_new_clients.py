from django.db import migrations, models


class Migration(migrations.Migration):
    # The index is built beside a table in use.
    atomic = False

    dependencies = [("licensing", "0011_a_plan_is_for_new_clients")]

    operations = [
        migrations.SeparateDatabaseAndState(
            database_operations=[
                migrations.RunSQL(
                    "CREATE UNIQUE INDEX CONCURRENTLY plan_default_is_one"
                    " ON licensing_plan (is_default) WHERE is_default",
                    "DROP INDEX CONCURRENTLY plan_default_is_one",
                )
            ],
            state_operations=[
                migrations.AddConstraint(
                    model_name="plan",
                    constraint=models.UniqueConstraint(
                        condition=models.Q(("is_default", True)),
                        fields=("is_default",),
                        name="plan_default_is_one",
                    ),
                )
            ],
        ),
    ]
