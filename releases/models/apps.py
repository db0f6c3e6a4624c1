"""Micro apps that shells install: versions, channels and pins.

Foreign keys over two columns ensure that a channel or a pin names a version of its own app. The ORM has no such keys,
so the migration ``0002_micro_apps`` adds them.
"""

from uuid import UUID

from django.db import models
from django.db.models import Q

from accounts.models import Client
from config.platform.text.versions import Version
from licensing.models import APP_SLUG, Plan


class MicroApp(models.Model):
    """An app by its slug, which entitlements name."""

    slug = models.SlugField(primary_key=True, max_length=60)
    created_at = models.DateTimeField()

    class Meta:
        ordering = ("slug",)
        constraints = (
            models.CheckConstraint(
                condition=Q(slug__regex=APP_SLUG), name="app_slug_is_a_plain_word"
            ),
        )

    def __str__(self) -> str:
        return self.slug


class AppVersionQuerySet(models.QuerySet["AppVersion"]):
    def offerable(self) -> "AppVersionQuerySet":
        """Stored and not withdrawn versions."""
        return self.filter(stored_at__isnull=False, withdrawn_at=None)


class AppVersion(models.Model):
    """One version of an app: a bundle in storage and its signature, which never change."""

    app = models.ForeignKey(MicroApp, on_delete=models.PROTECT, related_name="versions")
    version = models.CharField(max_length=120)
    sha256 = models.CharField(max_length=64)
    size = models.BigIntegerField(help_text="Bytes.")
    signature = models.BinaryField(help_text="The bundle's minisign file.")
    signed_with = models.CharField(
        max_length=16, help_text="The id of the key, as minisign prints it."
    )
    published_at = models.DateTimeField()
    published_by = models.CharField(max_length=120)
    stored_at = models.DateTimeField(
        null=True, help_text="When storage had it; empty while that is under way."
    )
    withdrawn_at = models.DateTimeField(null=True, blank=True)
    withdrawn_reason = models.TextField(blank=True)

    app_id: str

    objects = AppVersionQuerySet.as_manager()

    class Meta:
        ordering = ("app", "-published_at", "-id")
        constraints = (
            models.UniqueConstraint(fields=("app", "version"), name="one_row_per_app_and_version"),
            models.CheckConstraint(
                condition=Q(sha256__regex=r"^[0-9a-f]{64}$"), name="bundle_sha256_is_lower_hex"
            ),
            models.CheckConstraint(condition=Q(size__gt=0), name="bundle_size_is_positive"),
            models.CheckConstraint(
                condition=Q(withdrawn_at=None, withdrawn_reason="")
                | (Q(withdrawn_at__isnull=False) & ~Q(withdrawn_reason="")),
                name="app_version_is_withdrawn_for_a_reason",
            ),
        )

    def __str__(self) -> str:
        return f"{self.app_id} {self.version}"

    @property
    def parsed_version(self) -> Version:
        return Version.parse(self.version)


class AppChannel(models.Model):
    """The version of an app that a channel offers. Operators move channels, and publishing moves ``latest``."""

    class Name(models.TextChoices):
        LATEST = "latest", "latest"
        STABLE = "stable", "stable"
        BETA = "beta", "beta"

    app = models.ForeignKey(MicroApp, on_delete=models.PROTECT, related_name="channels")
    name = models.CharField(max_length=10, choices=Name)
    version = models.ForeignKey(AppVersion, on_delete=models.PROTECT, related_name="channels")
    moved_at = models.DateTimeField()
    moved_by = models.CharField(max_length=254)

    app_id: str

    class Meta:
        ordering = ("app", "name")
        constraints = (
            models.UniqueConstraint(fields=("app", "name"), name="one_row_per_app_and_channel"),
            models.CheckConstraint(
                condition=Q(name__in=["latest", "stable", "beta"]), name="app_channel_is_known"
            ),
        )

    def __str__(self) -> str:
        return f"{self.app_id} {self.name}"


class AppPin(models.Model):
    """Pins a client, or all clients of a plan, to a version instead of the channels'."""

    app = models.ForeignKey(MicroApp, on_delete=models.PROTECT, related_name="pins")
    version = models.ForeignKey(AppVersion, on_delete=models.PROTECT, related_name="pins")
    client = models.ForeignKey(Client, on_delete=models.CASCADE, null=True, blank=True)
    plan = models.ForeignKey(Plan, on_delete=models.PROTECT, null=True, blank=True)
    reason = models.TextField()
    pinned_at = models.DateTimeField()
    pinned_by = models.CharField(max_length=254)

    app_id: str
    client_id: UUID | None
    plan_id: int | None

    class Meta:
        ordering = ("app", "id")
        constraints = (
            models.CheckConstraint(
                condition=Q(client=None, plan__isnull=False) | Q(client__isnull=False, plan=None),
                name="app_pin_is_for_a_client_or_a_plan",
            ),
            models.UniqueConstraint(
                fields=("app", "client"),
                condition=Q(client__isnull=False),
                name="one_pin_per_app_and_client",
            ),
            models.UniqueConstraint(
                fields=("app", "plan"),
                condition=Q(plan__isnull=False),
                name="one_pin_per_app_and_plan",
            ),
        )

    def __str__(self) -> str:
        return f"{self.version} for {self.client or self.plan}"
