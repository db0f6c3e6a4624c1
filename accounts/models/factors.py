"""Operators' second factors, beside the passkeys of django-otp-webauthn, and their sessions in the console."""

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.utils import timezone
from django_otp.models import Device, ThrottlingMixin, TimestampMixin
from django_otp.oath import TOTP

from accounts.device_names import device_name
from accounts.hashers import token_matches
from accounts.models.people import User
from config.platform.encryption import Sealed

DIGITS = 6
# A clock that is wrong by a step of 30 seconds is tolerated.
TOLERATED_STEPS = 1
# Of wrong codes in a row whose wait doubles: the longest is 17 minutes, so that whoever knows an operator's password
# cannot lock them out for days, and guesses a code a hundred times a day.
MOST_DOUBLED = 11
IDLE_END = timedelta(minutes=30)
LONGEST = timedelta(hours=12)


class CodeDevice(TimestampMixin, ThrottlingMixin, Device):
    """A device of typed codes: after each wrong one the wait doubles, up to a bound, and a code is good once."""

    class Meta:
        abstract = True

    def get_throttle_factor(self) -> float:
        """The wait in seconds after the first wrong code."""
        return 1.0

    def verify_is_allowed(self) -> tuple[bool, Any]:
        self.throttling_failure_count = min(self.throttling_failure_count, MOST_DOUBLED)
        allowed, why = super().verify_is_allowed()
        return allowed, why

    def verify_token(self, token: str) -> bool:
        """Checks a code and uses it up. The caller holds the row's lock, as ``django_otp.verify_token`` does."""
        if not self.verify_is_allowed()[0]:
            return False
        if not self.use_up(token):
            self.throttle_increment()
            return False
        self.throttle_reset(commit=False)
        self.set_last_used_timestamp(commit=False)
        self.save()
        return True

    def use_up(self, token: str) -> bool:
        raise NotImplementedError


class Authenticator(Sealed, CodeDevice):
    """An app that shows a new code every 30 seconds (RFC 6238). Its key is encrypted."""

    bound_to = ("user_id",)
    key = models.BinaryField(editable=False)
    # The step of the latest code that was used: neither it nor an older one is good again.
    last_step = models.BigIntegerField(default=-1, editable=False)

    # Named here for type checkers; Django adds it.
    user_id: UUID

    class Meta:
        ordering = ("id",)

    def __str__(self) -> str:
        return self.name

    def get_throttle_factor(self) -> float:
        """None before the first right code: the page that asks for it shows the key, so there is nothing to guess."""
        return super().get_throttle_factor() if self.confirmed else 0.0

    def use_up(self, token: str) -> bool:
        step = self._step_of(token, earliest=self.last_step + 1)
        self.last_step = self.last_step if step is None else step
        return step is not None

    def was_used(self, token: str) -> bool:
        """Returns whether a refused code is a right one of now, and so was used before."""
        return self._step_of(token, earliest=0) is not None

    def _step_of(self, token: str, *, earliest: int) -> int | None:
        if len(token) != DIGITS or not (token.isascii() and token.isdigit()):
            return None
        codes = TOTP(self.unseal("key"), digits=DIGITS)
        codes.time = timezone.now().timestamp()
        right = codes.verify(int(token), tolerance=TOLERATED_STEPS, min_t=earliest)
        return int(codes.t()) if right else None


class RecoveryCodes(CodeDevice):
    """The codes that replace an operator's lost factor, each once. Their argon2id hashes are stored."""

    hashes = ArrayField(models.CharField(max_length=128), editable=False)

    class Meta:
        ordering = ("id",)
        constraints = (
            models.UniqueConstraint(fields=("user",), name="recovery_codes_once_a_person"),
        )

    def __str__(self) -> str:
        return self.name

    def use_up(self, token: str) -> bool:
        used = next((each for each in self.hashes if token_matches(each, token)), None)
        if used is not None:
            self.hashes.remove(used)
        return used is not None


class SetUpCode(models.Model):
    """The code with which an operator without a factor sets one up. Its secret is stored as a SHA-256 hash."""

    user = models.OneToOneField(User, on_delete=models.CASCADE, primary_key=True, related_name="+")
    secret_hash = models.CharField(max_length=64, editable=False)
    expires_at = models.DateTimeField()

    class Meta:
        ordering = ("user",)

    def __str__(self) -> str:
        return f"set-up code until {self.expires_at:%H:%M}"


class ConsoleSessionQuerySet(models.QuerySet["ConsoleSession"]):
    def in_time(self, *, at: datetime) -> "ConsoleSessionQuerySet":
        """Sessions that were used lately, are not too old and have not been ended."""
        return self.filter(
            ended_at=None, last_used_at__gt=at - IDLE_END, started_at__gt=at - LONGEST
        )

    def live(self, *, at: datetime) -> "ConsoleSessionQuerySet":
        """Returns the sessions that no revocation and no new password has ended."""
        return self.in_time(at=at).filter(epoch=models.F("user__epoch"))


class ConsoleSession(models.Model):
    """A sign-in of an operator in one browser. The browser's cookie belongs to another table, which refers to it."""

    id = models.UUIDField(primary_key=True, default=uuid4, editable=False)
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="console_sessions")
    epoch = models.PositiveIntegerField(help_text="the operator's epoch when it was last used")
    browser = models.CharField(max_length=200, blank=True)
    started_at = models.DateTimeField()
    started_from = models.GenericIPAddressField(null=True)
    last_used_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, blank=True)

    objects = ConsoleSessionQuerySet.as_manager()

    class Meta:
        ordering = ("-last_used_at", "id")

    def __str__(self) -> str:
        return f"console session {str(self.pk)[:8]}"

    @property
    def device(self) -> str:
        return device_name(self.browser) or "Unknown browser"
