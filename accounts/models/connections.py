"""Connections to third parties, open authorisations, and pending revocations."""

from datetime import datetime, timedelta
from uuid import UUID

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import F, Q

from accounts.models.people import User
from accounts.models.sessions import Session
from config.platform.encryption import Sealed

PROVIDER_LENGTH = 40
_PROVIDER = r"^[a-z0-9][a-z0-9_-]*$"
# A provider that refuses in unknown words, and says nothing else, for this long: the person is asked too.
REFUSED_FOR_LONG = timedelta(hours=6)
# An access token is renewed this long before its end, or in the last fifth of a short life …
AHEAD = timedelta(minutes=5)
# … and is not handed out any more in its last seconds, or the last tenth of a short life.
LAST_SECONDS = timedelta(seconds=10)


class Connection(Sealed, models.Model):
    """A person's grant at one third party, with encrypted tokens.

    ``generation`` counts the sets of tokens: a response to a request of an earlier generation changes nothing.
    ``fence`` and ``leased_until`` are the lease of the one refresh that may be under way. ``answer_lost`` means that
    the provider may have replaced the refresh token in a response that never arrived. ``refused_since``: since then the
    provider has said nothing but refusals in unknown words; from before ``refreshed_at`` it means nothing.
    """

    class State(models.TextChoices):
        HEALTHY = "healthy"
        REAUTHORISATION_NEEDED = "reauthorisation_needed", "reauthorisation needed"
        UNAVAILABLE = "unavailable"

    class Lapse(models.TextChoices):
        REFUSED = "refused", "the provider no longer accepts the grant"
        ANSWER_LOST = "answer_lost", "refused after an answer of the provider was lost"
        EXPIRED = "expired", "it expired, and the provider gave nothing to renew it with"
        # The only one after which the provider is still asked, and may heal it.
        UNEXPLAINED = "unexplained", "refused for hours with an error that is not known here"

    class Failure(models.TextChoices):
        UNREACHABLE = "unreachable", "could not be reached"
        TIMED_OUT = "timed_out", "took too long"
        OVERLOADED = "overloaded", "asked to wait"
        FAILED = "failed", "failed, or sent an unusable answer"
        CLIENT_REFUSED = "client_refused", "does not accept our client id or its secret"

    bound_to = ("user_id", "provider")
    id = models.BigAutoField(primary_key=True)
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="connections")
    provider = models.CharField(max_length=PROVIDER_LENGTH)
    scopes = ArrayField(models.CharField(max_length=500), default=list, blank=True)
    access_token = models.BinaryField(editable=False)
    refresh_token = models.BinaryField(null=True, editable=False)
    connected_at = models.DateTimeField(help_text="when the person last agreed")
    refreshed_at = models.DateTimeField(help_text="when the provider last gave tokens")
    expires_at = models.DateTimeField(null=True, help_text="of the access token")
    lapsed_at = models.DateTimeField(null=True)
    lapse = models.CharField(max_length=20, choices=Lapse, blank=True)
    failed_at = models.DateTimeField(null=True)
    failure = models.CharField(max_length=20, choices=Failure, blank=True)
    ask_again_at = models.DateTimeField(
        null=True, help_text="the provider is left alone until then"
    )
    refused_since = models.DateTimeField(
        null=True, editable=False, help_text="of refusals in unknown words alone"
    )
    generation = models.BigIntegerField(default=1, editable=False)
    fence = models.BigIntegerField(default=0, editable=False)
    leased_until = models.DateTimeField(null=True, editable=False)
    answer_lost = models.BooleanField(default=False, editable=False)

    # Named here for type checkers; Django adds it.
    user_id: UUID

    class Meta:
        ordering = ("provider", "id")
        constraints = (
            models.UniqueConstraint(
                fields=("user", "provider"), name="one_connection_per_user_and_provider"
            ),
            models.CheckConstraint(
                condition=Q(provider__regex=_PROVIDER), name="connection_provider_is_a_plain_word"
            ),
            models.CheckConstraint(
                condition=Q(lapsed_at=None, lapse="") | (Q(lapsed_at__isnull=False) & ~Q(lapse="")),
                name="connection_lapse_has_a_reason",
            ),
            models.CheckConstraint(
                condition=Q(failed_at=None, failure="")
                | (Q(failed_at__isnull=False) & ~Q(failure="")),
                name="connection_failure_has_a_kind",
            ),
        )

    def __str__(self) -> str:
        return f"{self.provider} of {self.user_id}"

    def state(self, *, at: datetime) -> State:
        """The state by the row alone."""
        ended = self.expires_at is not None and self.expires_at <= at
        if self.lapsed_at is not None or (ended and self.refresh_token is None):
            return self.State.REAUTHORISATION_NEEDED
        return self.State.UNAVAILABLE if self.failure else self.State.HEALTHY

    @property
    def is_unexplained(self) -> bool:
        """Returns whether the person is asked, and the provider too."""
        return self.lapse == self.Lapse.UNEXPLAINED

    def refused_for(self, *, at: datetime) -> timedelta:
        """The length of a series of refusals in unknown words up to one ``at`` this instant."""
        since = self.refused_since
        # A process of the release before stores new tokens without an end of the series.
        return max(at - since, timedelta()) if since and since > self.refreshed_at else timedelta()

    def is_due(self, *, at: datetime) -> bool:
        """Returns whether the access token should be renewed."""
        return self._ends_within(AHEAD, 5, at)

    def is_usable(self, *, at: datetime) -> bool:
        """Returns whether the access token can still be provided."""
        return not self._ends_within(LAST_SECONDS, 10, at)

    def _ends_within(self, margin: timedelta, share: int, at: datetime) -> bool:
        if self.expires_at is None:
            return False
        life = self.expires_at - self.refreshed_at
        return at >= self.expires_at - min(margin, life / share)


class ConnectionAttempt(Sealed, models.Model):
    """An open authorisation, deleted by its one use; its state is stored as a hash only."""

    bound_to = ("state_hash", "user_id")
    id = models.BigAutoField(primary_key=True)
    state_hash = models.CharField(max_length=64, unique=True, editable=False)
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="connection_attempts")
    session = models.ForeignKey(
        Session, on_delete=models.CASCADE, related_name="connection_attempts"
    )
    provider = models.CharField(max_length=PROVIDER_LENGTH)
    redirect_uri = models.CharField(max_length=200)
    verifier = models.BinaryField(editable=False)
    began_at = models.DateTimeField()
    expires_at = models.DateTimeField()

    class Meta:
        ordering = ("-id",)
        constraints = (
            models.CheckConstraint(
                condition=Q(expires_at__gt=F("began_at")), name="connection_attempt_expires_later"
            ),
        )
        indexes = (models.Index(fields=("expires_at",), name="connection_attempt_by_end"),)

    def __str__(self) -> str:
        return f"{self.provider} {self.pk}"


class ConnectionRevocation(Sealed, models.Model):
    """A pending revocation of an ended connection's grant, kept until the provider confirms it.

    The row outlives the connection and the person, whom it names by value.
    """

    bound_to = ("user_id", "provider")
    id = models.BigAutoField(primary_key=True)
    provider = models.CharField(max_length=PROVIDER_LENGTH)
    user_id = models.UUIDField("user")
    tokens = models.BinaryField(editable=False)
    asked_at = models.DateTimeField()
    due_at = models.DateTimeField(help_text="when it is tried next")
    attempts = models.PositiveIntegerField(default=0)
    tried_at = models.DateTimeField(null=True)
    failure = models.CharField(max_length=20, blank=True, help_text="of the last attempt")
    gave_up_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ("-id",)
        indexes = (
            models.Index(fields=("user_id", "provider"), name="revocation_by_user"),
            models.Index(
                fields=("due_at",), condition=Q(gave_up_at=None), name="revocation_by_next_attempt"
            ),
        )

    def __str__(self) -> str:
        return f"{self.provider} {self.pk}"
