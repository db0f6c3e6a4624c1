from datetime import UTC, datetime

from django.contrib.postgres.operations import AddConstraintNotValid
from django.db import migrations, models
from django.db.models.lookups import Exact, LessThanOrEqual

FIRST, LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
ENTITLEMENTS = models.F("entitlements")
IS_LIST = models.Q(
    Exact(
        models.Func(
            ENTITLEMENTS,
            function="num_nulls",
            template="%(function)s(VARIADIC %(expressions)s)",
            output_field=models.IntegerField(),
        ),
        0,
    ),
    LessThanOrEqual(
        models.Func(ENTITLEMENTS, function="array_ndims", output_field=models.IntegerField()), 1
    ),
)


class Migration(migrations.Migration):
    """By itself, as the one before."""

    dependencies = [("licensing", "0005_plan_entitlements_are_lists")]

    operations = [
        AddConstraintNotValid(
            model_name="licence",
            constraint=models.CheckConstraint(
                condition=IS_LIST, name="licence_entitlements_are_a_list"
            ),
        ),
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
