"""Plans, the licences of clients, and held suspensions."""

from collections.abc import Collection
from datetime import datetime
from uuid import UUID

from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.functions import RandomUUID
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import Case, F, Func, Q, When
from django.db.models.functions import Coalesce
from django.db.models.lookups import Exact, LessThanOrEqual
from django.utils import timezone

from accounts.models import Client
from config.platform.runtime.clock import is_readable
from licensing.models.notices import OF_NOTICES, ShellNotice

# The slug of a micro app, which entitlements refer to.
APP_SLUG = r"^[a-z0-9]+(-[a-z0-9]+)*$"


class Standing(models.TextChoices):
    """The status of a licence: a shell works, works for a limited time, or is locked."""

    ACTIVE = "active", "active"
    GRACE = "grace", "grace"
    SUSPENDED = "suspended", "suspended"


class DevicesFull(models.TextChoices):
    """The answer to a sign-in from one more device than a licence allows a person."""

    REFUSE = "refuse", "Refuse the sign-in"
    OLDEST = "oldest", "Sign out the least recently used device"


def entitlement_list() -> list[str]:
    return []


def is_list(column: str) -> Q:
    """Returns whether an array is a plain list: without NULLs and with at most one dimension."""
    nulls = Func(
        F(column),
        function="num_nulls",
        template="%(function)s(VARIADIC %(expressions)s)",
        output_field=models.IntegerField(),
    )
    # NULL for an empty array, which is not a violation.
    dimensions = Func(F(column), function="array_ndims", output_field=models.IntegerField())
    return Q(Exact(nulls, 0), LessThanOrEqual(dimensions, 1))


class Plan(models.Model):
    """A tier: its micro apps and the token caps of its people. An empty cap is no cap."""

    name = models.CharField(max_length=60, unique=True)
    entitlements = ArrayField(models.SlugField(max_length=60), default=entitlement_list, blank=True)
    monthly_input_tokens = models.PositiveBigIntegerField(null=True, blank=True)
    monthly_output_tokens = models.PositiveBigIntegerField(null=True, blank=True)
    daily_tokens = models.PositiveBigIntegerField(
        null=True,
        blank=True,
        help_text=(
            "Both kinds together. Empty: twice the monthly total divided by 30, "
            "or none if a monthly cap is empty."
        ),
    )
    allows_keys = models.BooleanField(
        "personal keys",
        default=False,
        db_default=False,
        help_text="People can create keys for editors and command lines.",
    )
    cached_input_percent = models.SmallIntegerField(
        "percent of cached input",
        default=100,
        db_default=100,
        validators=(MinValueValidator(0), MaxValueValidator(100)),
        help_text=(
            "Percent of the input read from a provider's cache that counts towards daily and monthly caps. 10 suits "
            "coding tools, which repeat most of their input in every call. The cost of calls does not change."
        ),
    )
    is_default = models.BooleanField(
        "for new clients",
        default=False,
        db_default=False,
        help_text="New clients get this plan unless another is selected. It replaces the previous one.",
    )
    # Another one after each change of what a higher app offers by plans, so that processes may keep that.
    catalogue_version = models.UUIDField(db_default=RandomUUID(), editable=False)

    class Meta:
        ordering = ("name",)
        constraints = (
            models.CheckConstraint(
                condition=is_list("entitlements"), name="plan_entitlements_are_a_list"
            ),
            models.CheckConstraint(
                condition=Q(cached_input_percent__range=(0, 100)),
                name="plan_cached_input_is_a_percent",
            ),
            models.UniqueConstraint(
                fields=("is_default",), condition=Q(is_default=True), name="plan_default_is_one"
            ),
        )

    def __str__(self) -> str:
        return self.name

    def validate_constraints(self, exclude: Collection[str] | None = None) -> None:
        """Leaves the one plan of new clients to the rule, which ends another's turn first."""
        super().validate_constraints({*(exclude or ()), "is_default"})


class LicenceQuerySet(models.QuerySet["Licence"]):
    def graces_of_operators_over(self, *, at: datetime) -> "LicenceQuerySet":
        """Licences in an operator's grace that has run out, while the operator's status applies."""
        counts = Q(operator_until=None) | Q(operator_until__gt=at)
        return self.filter(counts, operator_status=Standing.GRACE, operator_grace_until__lte=at)


class Licence(ShellNotice):
    """A client's licence with two statuses, one by billing and one by an operator.

    The database derives ``status`` and ``grace_until`` from both, operator first, so that they are always consistent.
    """

    client = models.OneToOneField(Client, on_delete=models.CASCADE, related_name="licence")
    plan = models.ForeignKey(Plan, on_delete=models.PROTECT, related_name="licences")
    entitlements = ArrayField(
        models.SlugField(max_length=60),
        default=entitlement_list,
        blank=True,
        help_text="Micro apps beyond those of the plan.",
    )
    seats = models.PositiveIntegerField(
        null=True,
        blank=True,
        validators=(MinValueValidator(1),),
        help_text="How many people can be enabled, including those invited. Empty: any number.",
    )
    devices = models.PositiveIntegerField(
        "devices per person",
        null=True,
        blank=True,
        validators=(MinValueValidator(1),),
        help_text="How many devices each person can be signed in on. Empty: any number.",
    )
    devices_full = models.CharField(
        "when all are in use",
        max_length=10,
        choices=DevicesFull,
        default=DevicesFull.REFUSE,
        db_default=DevicesFull.REFUSE,
    )
    stripe_customer_id = models.CharField(
        max_length=255,
        blank=True,
        default="",
        db_default="",
        help_text="The id of the customer in Stripe. Empty: billing says nothing.",
    )
    billing_status = models.CharField(max_length=10, choices=Standing, default=Standing.ACTIVE)
    # Kept after its end while payment is due, so that each debt has one grace.
    billing_grace_until = models.DateTimeField(null=True, blank=True)
    operator_status = models.CharField(max_length=10, choices=Standing, null=True, blank=True)  # noqa: DJ001
    operator_grace_until = models.DateTimeField(null=True, blank=True)
    operator_reason = models.TextField(blank=True)
    operator_until = models.DateTimeField(
        null=True,
        blank=True,
        help_text="When the operator's decision expires and billing applies again.",
    )
    changed_at = models.DateTimeField(default=timezone.now, editable=False)

    status = models.GeneratedField(
        expression=Coalesce(F("operator_status"), F("billing_status")),
        output_field=models.CharField(max_length=10, choices=Standing),
        db_persist=True,
    )
    grace_until = models.GeneratedField(
        expression=Case(
            When(operator_status=Standing.GRACE, then=F("operator_grace_until")),
            When(
                Q(operator_status=None) & Q(billing_status=Standing.GRACE),
                then=F("billing_grace_until"),
            ),
            default=None,
        ),
        output_field=models.DateTimeField(null=True),
        db_persist=True,
    )

    client_id: UUID
    plan_id: int

    objects = LicenceQuerySet.as_manager()

    class Meta:
        ordering = ("client__name",)
        constraints = (
            *OF_NOTICES,
            models.CheckConstraint(
                condition=Q(billing_status__in=Standing.values)
                & (Q(operator_status=None) | Q(operator_status__in=Standing.values)),
                name="licence_statuses_are_known",
            ),
            models.CheckConstraint(
                condition=~Q(billing_status=Standing.GRACE) | Q(billing_grace_until__isnull=False),
                name="licence_billing_grace_has_an_end",
            ),
            models.CheckConstraint(
                condition=~Q(operator_status=Standing.GRACE, operator_status__isnull=False)
                | Q(operator_grace_until__isnull=False),
                name="licence_operator_grace_has_an_end",
            ),
            models.CheckConstraint(
                condition=Q(operator_status=None) | ~Q(operator_reason=""),
                name="licence_operator_gives_a_reason",
            ),
            models.CheckConstraint(
                condition=is_list("entitlements"), name="licence_entitlements_are_a_list"
            ),
            models.CheckConstraint(
                condition=(Q(devices=None) | Q(devices__gte=1))
                & Q(devices_full__in=DevicesFull.values),
                name="licence_devices_are_a_limit",
            ),
            models.CheckConstraint(
                condition=is_readable(
                    "billing_grace_until", "operator_grace_until", "operator_until"
                ),
                name="licence_instants_are_readable",
            ),
            models.UniqueConstraint(
                fields=("stripe_customer_id",),
                condition=~Q(stripe_customer_id=""),
                name="licence_customer_pays_for_one",
            ),
        )

    def __str__(self) -> str:
        return f"{self.client} · {self.plan} · {self.status}"

    @property
    def all_entitlements(self) -> list[str]:
        return merged(self.plan.entitlements, self.entitlements)

    def operator_decision_has_expired(self, *, at: datetime) -> bool:
        return self.operator_until is not None and self.operator_until <= at

    def operator_grace_has_run_out(self, *, at: datetime) -> bool:
        """Returns whether ``graces_of_operators_over`` includes this row."""
        until = self.operator_grace_until
        if self.operator_status != Standing.GRACE or until is None:
            return False
        return until <= at and not self.operator_decision_has_expired(at=at)


class HeldSuspension(models.Model):
    """A run that would have suspended implausibly many clients, and so changed nothing.

    It is held until an operator confirms it or a later run would suspend fewer.
    """

    job = models.CharField(max_length=60)
    licence_ids = ArrayField(models.BigIntegerField())
    clients = models.PositiveIntegerField(help_text="How many there were in all.")
    noticed_at = models.DateTimeField()
    confirmed_at = models.DateTimeField(null=True, blank=True)
    confirmed_by = models.CharField(max_length=254, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        # Processes of the release before read and write the table by this name.
        db_table = "licensing_brake"
        verbose_name = "held suspension"
        ordering = ("-noticed_at", "-id")
        constraints = (
            models.UniqueConstraint(
                fields=("job",), condition=Q(ended_at=None), name="brake_is_one_for_each_job"
            ),
        )

    def __str__(self) -> str:
        return f"{self.job}: {len(self.licence_ids)} of {self.clients} clients"

    @property
    def is_held(self) -> bool:
        """Returns whether these suspensions need an operator's confirmation."""
        return self.ended_at is None and self.confirmed_at is None


def merged(of_plan: list[str], of_licence: list[str]) -> list[str]:
    """The entitlements of a client: the sorted union of its plan's and its licence's."""
    return sorted({*of_plan, *of_licence})
