from datetime import UTC, datetime

from django.contrib.postgres.operations import AddConstraintNotValid
from django.db import migrations, models

FIRST, LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)


class Migration(migrations.Migration):
    dependencies = [("licensing", "0006_entitlements_validated")]

    operations = [
        AddConstraintNotValid(
            model_name="licence",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(
                        ("billing_grace_until__gte", FIRST), ("billing_grace_until__lte", LAST)
                    ),
                    models.Q(
                        ("operator_grace_until__gte", FIRST), ("operator_grace_until__lte", LAST)
                    ),
                    models.Q(("operator_until__gte", FIRST), ("operator_until__lte", LAST)),
                ),
                name="licence_instants_are_readable",
            ),
        ),
    ]
