"""The keys that sign access tokens. The stage of a key follows from its timestamps alone."""

from datetime import datetime, timedelta

from django.db import models
from django.db.models import F, Q

from config.platform.encryption import Sealed

# A key verifies for this long after its last signature; a token itself lasts an hour.
VERIFYING = timedelta(days=90)


class Stage(models.TextChoices):
    """The stages of a key, in order, derived from its timestamps and not stored."""

    PLANNED = "planned", "planned"
    PUBLISHED = "published", "published, not signing yet"
    SIGNING = "signing", "signs"
    VERIFYING = "verifying", "no longer signs, still verifies"
    RETIRED = "retired", "retired"


class SigningKeyQuerySet(models.QuerySet["SigningKey"]):
    """Filters by :meth:`SigningKey.stage` in the database."""

    def at_stage(self, stage: Stage, *, at: datetime) -> "SigningKeyQuerySet":
        return self.filter(_STAGES[stage](at))

    def verifying(self, *, at: datetime) -> "SigningKeyQuerySet":
        """Keys whose signatures are accepted, before, during and after their time of signing."""
        return self.exclude(_STAGES[Stage.RETIRED](at))


class SigningKey(Sealed, models.Model):
    """An RSA key pair; the private half is encrypted.

    ``published_at`` ≤ ``signs_from`` ≤ ``superseded_at``; ``revoked_at`` voids all its signatures at once.
    """

    bound_to = ("kid",)
    kid = models.CharField(primary_key=True, max_length=43, help_text="RFC 7638 thumbprint")
    public_pem = models.TextField()
    private_key = models.BinaryField()
    published_at = models.DateTimeField()
    signs_from = models.DateTimeField()
    superseded_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)

    objects = SigningKeyQuerySet.as_manager()

    class Meta:
        ordering = ("-signs_from", "kid")
        constraints = (
            models.CheckConstraint(
                condition=Q(signs_from__gte=F("published_at")),
                name="key_is_published_before_it_signs",
            ),
            models.CheckConstraint(
                condition=Q(superseded_at=None) | Q(superseded_at__gte=F("signs_from")),
                name="key_signs_before_it_is_superseded",
            ),
        )

    def __str__(self) -> str:
        return self.kid

    def stage(self, *, at: datetime) -> Stage:
        """The stage at an instant."""
        if not self.verifies(at=at):
            return Stage.RETIRED
        if self.superseded_at is not None and self.superseded_at <= at:
            return Stage.VERIFYING
        if self.signs_from <= at:
            return Stage.SIGNING
        return Stage.PUBLISHED if self.published_at <= at else Stage.PLANNED

    def verifies(self, *, at: datetime) -> bool:
        """Returns whether signatures of this key are accepted: until 90 days after the last.

        There is no earliest time: a host whose clock is behind may see a signature before ``signs_from``.
        """
        if self.revoked_at is not None:
            return False
        return self.verifies_until is None or at < self.verifies_until

    @property
    def verifies_until(self) -> datetime | None:
        """The time when the key retires, or None while no other key supersedes it."""
        if self.revoked_at is not None:
            return self.revoked_at
        return self.superseded_at + VERIFYING if self.superseded_at else None


def _live(at: datetime) -> Q:
    return Q(revoked_at=None) & (Q(superseded_at=None) | Q(superseded_at__gt=at - VERIFYING))


def _signs_still(at: datetime) -> Q:
    return Q(revoked_at=None) & (Q(superseded_at=None) | Q(superseded_at__gt=at))


_STAGES = {
    Stage.PLANNED: lambda at: _signs_still(at) & Q(published_at__gt=at),
    Stage.PUBLISHED: lambda at: _signs_still(at) & Q(published_at__lte=at, signs_from__gt=at),
    Stage.SIGNING: lambda at: _signs_still(at) & Q(signs_from__lte=at),
    Stage.VERIFYING: lambda at: _live(at) & Q(superseded_at__lte=at),
    Stage.RETIRED: lambda at: ~_live(at),
}
