from django.db import migrations, models


class Migration(migrations.Migration):
    # The index is built beside a table in use.
    atomic = False

    dependencies = [("licensing", "0003_billing_by_the_night")]

    operations = [
        migrations.SeparateDatabaseAndState(
            database_operations=[
                migrations.RunSQL(
                    "CREATE UNIQUE INDEX CONCURRENTLY licence_customer_pays_for_one"
                    " ON licensing_licence (stripe_customer_id)"
                    " WHERE NOT (stripe_customer_id = '')",
                    "DROP INDEX CONCURRENTLY licence_customer_pays_for_one",
                )
            ],
            state_operations=[
                migrations.AddConstraint(
                    model_name="licence",
                    constraint=models.UniqueConstraint(
                        condition=models.Q(("stripe_customer_id", ""), _negated=True),
                        fields=("stripe_customer_id",),
                        name="licence_customer_pays_for_one",
                    ),
                )
            ],
        ),
    ]
