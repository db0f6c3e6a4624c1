from django.contrib.postgres.operations import AddConstraintNotValid
from django.db import migrations, models
from django.db.models.lookups import Exact, LessThanOrEqual

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
    """One table: requests read this and the next, and would wait for one while this waits for the other."""

    dependencies = [("licensing", "0004_a_customer_pays_for_one")]

    operations = [
        AddConstraintNotValid(
            model_name="plan",
            constraint=models.CheckConstraint(
                condition=IS_LIST, name="plan_entitlements_are_a_list"
            ),
        ),
    ]
