"""The keys that sign access tokens. Where a key is in its life follows from its timestamps alone."""

from datetime import datetime, timedelta

from django.db import models
from django.db.models import F, Q

VERIFYING = timedelta(days=90)


class SigningKey(models.Model):
    """An RSA key pair; the private half is encrypted.

    ``published_at`` ≤ ``signs_from`` ≤ ``superseded_at``; ``revoked_at`` voids all its signatures at once.
    """

    kid = models.CharField(primary_key=True, max_length=43, help_text="RFC 7638 thumbprint")
    public_pem = models.TextField()
    private_key = models.BinaryField()
    published_at = models.DateTimeField()
    signs_from = models.DateTimeField()
    superseded_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)

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

    def verifies(self, *, at: datetime) -> bool:
        """Whether signatures of this key are accepted: from its publication until 90 days after its last one."""
        if self.revoked_at is not None or self.published_at > at:
            return False
        return self.superseded_at is None or at < self.superseded_at + VERIFYING
