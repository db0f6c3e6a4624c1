"""Sessions and refresh tokens: a session is one sign-in on one device, its tokens form a chain."""

from datetime import datetime
from uuid import UUID, uuid4

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now
from django.db.models.lookups import GreaterThan, IsNull

from accounts.device_names import device_name
from accounts.models.people import User
from config.platform.runtime.clock import is_readable


class SessionQuerySet(models.QuerySet["Session"]):
    def live(self, *, at: datetime) -> "SessionQuerySet":
        """Sessions that have neither ended nor expired and have a valid refresh token."""
        return self.filter(live_tokens(at=at), ended_at=None)


def live_tokens(*, at: datetime) -> models.Exists:
    """Returns whether a session has not expired and has a valid refresh token."""
    tokens = RefreshToken.objects.filter(session=models.OuterRef("pk")).live(at=at)
    end = models.OuterRef("expires_at")
    return models.Exists(tokens.filter(Q(IsNull(end, True)) | Q(GreaterThan(end, at))))


class Session(models.Model):
    """One sign-in on one device. An ended session is kept as evidence of the time and reason."""

    class Ended(models.TextChoices):
        LOGOUT = "logout", "signed out"
        REVOKED = "revoked", "revoked"
        PASSWORD = "password", "a new password was set"
        DISABLED = "disabled", "the person was disabled"
        REUSE = "reuse", "a replaced token was presented again"
        DEVICES = "devices", "another device took its place"

    id = models.UUIDField(primary_key=True, default=uuid4, editable=False)
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="sessions"
    )
    device_fp = models.CharField("device", max_length=200, blank=True)
    agent = models.CharField(
        "program", max_length=200, blank=True, default="", db_default="",
        help_text="what the shell said of itself when it signed in",
    )  # fmt: skip
    started_at = models.DateTimeField()
    started_from = models.GenericIPAddressField(null=True, blank=True)
    last_used_at = models.DateTimeField()
    last_used_from = models.GenericIPAddressField(null=True, blank=True)
    expires_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)
    ended_by = models.CharField(max_length=10, choices=Ended, blank=True)

    objects = SessionQuerySet.as_manager()

    class Meta:
        ordering = ("-started_at", "id")
        constraints = (
            models.CheckConstraint(
                condition=Q(ended_at=None, ended_by="")
                | (Q(ended_at__isnull=False) & ~Q(ended_by="")),
                name="session_end_has_a_reason",
            ),
            models.CheckConstraint(
                condition=is_readable("expires_at"), name="session_expiry_is_readable"
            ),
        )
        indexes = (
            models.Index(fields=("started_at",), name="session_by_start"),
            # Pruning uses this index.
            models.Index(
                fields=("ended_at", "id"),
                condition=Q(ended_at__isnull=False),
                name="session_by_end",
            ),
            models.Index(
                fields=("ended_by", "started_at"),
                condition=~Q(ended_by=""),
                name="session_by_why_it_ended",
            ),
            models.Index(
                fields=("device_fp",),
                opclasses=("varchar_pattern_ops",),
                name="session_by_device",
            ),
        )

    def __str__(self) -> str:
        return str(self.id)

    @property
    def device(self) -> str:
        """Returns the name of the device, as far as it says one, or its fingerprint."""
        return device_name(self.agent) or self.device_fp


class RefreshTokenQuerySet(models.QuerySet["RefreshToken"]):
    def live(self, *, at: datetime) -> "RefreshTokenQuerySet":
        """Tokens that are valid if their session is."""
        return self.filter(revoked_at=None, replaced_at=None, expires_at__gt=at)

    def unrevoked(self) -> "RefreshTokenQuerySet":
        return self.filter(revoked_at=None)


class RefreshToken(models.Model):
    """The record of a refresh token. Its id is the first half of the token; the whole is stored as a hash only."""

    id = models.UUIDField(primary_key=True, editable=False)
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="refresh_tokens")
    session = models.ForeignKey(Session, on_delete=models.CASCADE, related_name="refresh_tokens")
    token_hash = models.CharField(max_length=128)
    device_fp = models.CharField("device", max_length=200, blank=True)
    issued_at = models.DateTimeField(db_default=Now())
    expires_at = models.DateTimeField()
    revoked_at = models.DateTimeField(null=True, blank=True)
    replaced_at = models.DateTimeField(null=True, blank=True)
    # A chain is deleted as a whole, so that no row refers to a deleted token.
    replaced_by = models.OneToOneField(
        "self", null=True, blank=True, on_delete=models.DO_NOTHING, related_name="replaces"
    )
    # The address of its use, as evidence in case of reuse.
    replaced_from = models.GenericIPAddressField(null=True, blank=True)
    # The successor for a keyed retry, encrypted under the presented token; see accounts/sessions/retries.py.
    # A trigger deletes it when the token is revoked.
    retry_box = models.BinaryField(null=True, editable=False)

    # Named here for type checkers; Django adds them.
    user_id: UUID
    session_id: UUID
    replaced_by_id: UUID | None

    objects = RefreshTokenQuerySet.as_manager()

    class Meta:
        ordering = ("-issued_at", "id")
        constraints = (
            models.CheckConstraint(
                condition=Q(expires_at__gt=models.F("issued_at")), name="token_expires_later"
            ),
            models.CheckConstraint(
                condition=~Q(replaced_by=models.F("id")), name="token_replaces_another"
            ),
            models.CheckConstraint(
                condition=Q(replaced_by=None) | Q(replaced_at__isnull=False),
                name="token_replacement_has_a_moment",
            ),
            models.CheckConstraint(
                condition=Q(retry_box=None) | Q(replaced_at__isnull=False, revoked_at=None),
                name="token_box_ends_with_its_token",
            ),
            models.CheckConstraint(
                condition=is_readable("expires_at"), name="token_expiry_is_readable"
            ),
            # Expired tokens are included: an index condition cannot depend on the time.
            models.UniqueConstraint(
                fields=("session",),
                condition=Q(revoked_at=None, replaced_at=None),
                name="token_is_the_last_of_its_chain",
            ),
        )
        indexes = (
            models.Index(
                fields=("replaced_at",),
                condition=Q(retry_box__isnull=False),
                name="token_retry_box_by_age",
            ),
            models.Index(fields=("issued_at",), name="token_by_issue"),
            # Pruning uses this index: the last token of a chain expires last.
            models.Index(
                fields=("expires_at", "id"),
                condition=Q(revoked_at=None, replaced_at=None),
                name="token_last_by_expiry",
            ),
            models.Index(
                fields=("issued_at",),
                condition=Q(revoked_at__isnull=False),
                name="token_revoked_by_issue",
            ),
        )

    def __str__(self) -> str:
        # The id is half of a token; a short prefix is enough to tell rows apart.
        return f"{str(self.id)[:8]}…"
