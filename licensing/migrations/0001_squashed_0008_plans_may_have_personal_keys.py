"""Plans, licences and billing, as release 1f2697d had them."""

from datetime import UTC, datetime

from django.contrib.postgres.fields import ArrayField
from django.db import migrations, models
from django.db.models import F, Q
from django.db.models.functions import Coalesce
from django.db.models.lookups import Exact, LessThanOrEqual
from django.utils import timezone

from licensing.models import entitlement_list

# Python's range of dates.
FIRST, LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
IS_LIST = Q(
    Exact(
        models.Func(
            F("entitlements"),
            function="num_nulls",
            output_field=models.IntegerField(),
            template="%(function)s(VARIADIC %(expressions)s)",
        ),
        0,
    ),
    LessThanOrEqual(
        models.Func(F("entitlements"), function="array_ndims", output_field=models.IntegerField()),
        1,
    ),
)
PLAN = {
    "id": models.BigAutoField(
        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
    ),
    "name": models.CharField(max_length=60, unique=True),
    "entitlements": ArrayField(
        base_field=models.SlugField(max_length=60), blank=True, default=entitlement_list, size=None
    ),
    "monthly_input_tokens": models.PositiveBigIntegerField(blank=True, null=True),
    "monthly_output_tokens": models.PositiveBigIntegerField(blank=True, null=True),
    "daily_tokens": models.PositiveBigIntegerField(
        blank=True,
        help_text="Both kinds together. Empty: twice the monthly total divided by 30, or none if a monthly cap is empty.",
        null=True,
    ),
    "allows_keys": models.BooleanField(
        db_default=False,
        default=False,
        help_text="Whether people may make keys for editors and command lines.",
        verbose_name="personal keys",
    ),
}
PLAN_OPTIONS = {
    "ordering": ("name",),
    "constraints": [
        models.CheckConstraint(condition=IS_LIST, name="plan_entitlements_are_a_list"),
    ],
}
LICENCE = {
    "id": models.BigAutoField(
        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
    ),
    "entitlements": ArrayField(
        base_field=models.SlugField(max_length=60),
        blank=True,
        default=entitlement_list,
        help_text="Micro apps beyond those of the plan.",
        size=None,
    ),
    "billing_status": models.CharField(
        choices=[("active", "active"), ("grace", "grace"), ("suspended", "suspended")],
        default="active",
        max_length=10,
    ),
    "billing_grace_until": models.DateTimeField(blank=True, null=True),
    "operator_status": models.CharField(
        blank=True,
        choices=[("active", "active"), ("grace", "grace"), ("suspended", "suspended")],
        max_length=10,
        null=True,
    ),
    "operator_grace_until": models.DateTimeField(blank=True, null=True),
    "operator_reason": models.TextField(blank=True),
    "operator_until": models.DateTimeField(
        blank=True, help_text="When the operator's word ends and billing's counts again.", null=True
    ),
    "changed_at": models.DateTimeField(default=timezone.now, editable=False),
    "status": models.GeneratedField(
        db_persist=True,
        expression=Coalesce(F("operator_status"), F("billing_status")),
        output_field=models.CharField(
            choices=[("active", "active"), ("grace", "grace"), ("suspended", "suspended")],
            max_length=10,
        ),
    ),
    "grace_until": models.GeneratedField(
        db_persist=True,
        expression=models.Case(
            models.When(operator_status="grace", then=F("operator_grace_until")),
            models.When(
                Q(("operator_status", None), ("billing_status", "grace")),
                then=F("billing_grace_until"),
            ),
            default=None,
        ),
        output_field=models.DateTimeField(null=True),
    ),
    "client": models.OneToOneField(
        on_delete=models.CASCADE, related_name="licence", to="accounts.client"
    ),
    "plan": models.ForeignKey(
        on_delete=models.PROTECT, related_name="licences", to="licensing.plan"
    ),
    "stripe_customer_id": models.CharField(
        blank=True,
        db_default="",
        default="",
        help_text="Who pays, as Stripe calls them. Empty: billing says nothing.",
        max_length=255,
    ),
}
LICENCE_OPTIONS = {
    "ordering": ("client__name",),
    "constraints": [
        models.CheckConstraint(
            condition=Q(
                ("billing_status__in", ["active", "grace", "suspended"]),
                Q(
                    ("operator_status", None),
                    ("operator_status__in", ["active", "grace", "suspended"]),
                    _connector="OR",
                ),
            ),
            name="licence_statuses_are_known",
        ),
        models.CheckConstraint(
            condition=Q(
                Q(("billing_status", "grace"), _negated=True),
                ("billing_grace_until__isnull", False),
                _connector="OR",
            ),
            name="licence_billing_grace_has_an_end",
        ),
        models.CheckConstraint(
            condition=Q(
                Q(("operator_status", "grace"), ("operator_status__isnull", False), _negated=True),
                ("operator_grace_until__isnull", False),
                _connector="OR",
            ),
            name="licence_operator_grace_has_an_end",
        ),
        models.CheckConstraint(
            condition=Q(
                ("operator_status", None),
                Q(("operator_reason", ""), _negated=True),
                _connector="OR",
            ),
            name="licence_operator_gives_a_reason",
        ),
        models.UniqueConstraint(
            condition=Q(("stripe_customer_id", ""), _negated=True),
            fields=("stripe_customer_id",),
            name="licence_customer_pays_for_one",
        ),
        models.CheckConstraint(condition=IS_LIST, name="licence_entitlements_are_a_list"),
        models.CheckConstraint(
            condition=Q(
                Q(("billing_grace_until__gte", FIRST), ("billing_grace_until__lte", LAST)),
                Q(("operator_grace_until__gte", FIRST), ("operator_grace_until__lte", LAST)),
                Q(("operator_until__gte", FIRST), ("operator_until__lte", LAST)),
            ),
            name="licence_instants_are_readable",
        ),
    ],
}
BRAKE = {
    "id": models.BigAutoField(
        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
    ),
    "job": models.CharField(max_length=60),
    "licence_ids": ArrayField(base_field=models.BigIntegerField(), size=None),
    "clients": models.PositiveIntegerField(help_text="How many there were in all."),
    "noticed_at": models.DateTimeField(),
    "confirmed_at": models.DateTimeField(blank=True, null=True),
    "confirmed_by": models.CharField(blank=True, max_length=254),
    "ended_at": models.DateTimeField(blank=True, null=True),
}
BRAKE_OPTIONS = {
    "ordering": ("-noticed_at", "-id"),
    "constraints": [
        models.UniqueConstraint(
            condition=Q(("ended_at", None)), fields=("job",), name="brake_is_one_for_each_job"
        ),
    ],
}


def seed(apps, schema_editor):
    """The one tier of the first release."""
    apps.get_model("licensing", "Plan").objects.get_or_create(
        name="Starter",
        defaults={
            "monthly_input_tokens": 500_000,
            "monthly_output_tokens": 100_000,
            "daily_tokens": 100_000,
        },
    )


class Migration(migrations.Migration):
    replaces = [
        ("licensing", "0001_initial"),
        ("licensing", "0002_starter_plan"),
        ("licensing", "0003_billing_by_the_night"),
        ("licensing", "0004_a_customer_pays_for_one"),
        ("licensing", "0005_plan_entitlements_are_lists"),
        ("licensing", "0006_licences_are_readable"),
        ("licensing", "0007_plans_and_licences_validated"),
        ("licensing", "0008_plans_may_have_personal_keys"),
    ]
    initial = True
    dependencies = [("accounts", "0001_squashed_0026_second_factors")]

    operations = [
        migrations.CreateModel("Plan", list(PLAN.items()), PLAN_OPTIONS),
        migrations.CreateModel("Licence", list(LICENCE.items()), LICENCE_OPTIONS),
        migrations.CreateModel("Brake", list(BRAKE.items()), BRAKE_OPTIONS),
        migrations.RunPython(seed, migrations.RunPython.noop),
    ]
