"""What lets a person set a password without knowing one: links as a mail holds them, and one-time passwords."""

from datetime import datetime
from uuid import UUID

from django.db import models
from django.db.models import F, Q

from accounts.models.people import User


class PasswordLinkQuerySet(models.QuerySet["PasswordLink"]):
    def live(self, *, at: datetime) -> "PasswordLinkQuerySet":
        """Links that still set a password: unused, the newest of their kind, of somebody who may sign in.

        A revocation, and with it every new password, moves the person's epoch and voids all links before it.
        """
        # One that was taken back is not in anybody's hands, and one that set a password has moved the epoch.
        newer = PasswordLink.objects.filter(
            user=models.OuterRef("user"),
            kind=models.OuterRef("kind"),
            pk__gt=models.OuterRef("pk"),
            used_at=None,
        )
        return self.filter(
            ~models.Exists(newer),
            used_at=None,
            expires_at__gt=at,
            user__is_active=True,
            user__epoch=F("epoch"),
        )


class PasswordLink(models.Model):
    """One mailed link or one-time password. Only a hash of its secret is kept; SHA-256 is enough for random bits."""

    class Kind(models.TextChoices):
        RESET = "reset", "reset"
        INVITATION = "invitation", "invitation"
        ONE_TIME = "one_time", "one-time password"

    id = models.BigAutoField(primary_key=True)
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="password_links")
    kind = models.CharField(max_length=10, choices=Kind)
    secret_hash = models.CharField(max_length=64, unique=True, editable=False)
    epoch = models.PositiveIntegerField(help_text="the person's epoch when it was made")
    made_at = models.DateTimeField()
    expires_at = models.DateTimeField()
    # Or when it was taken back, because its mail could not be handed over.
    used_at = models.DateTimeField(null=True, blank=True)

    # Named here for type checkers; Django adds it.
    user_id: UUID

    objects = PasswordLinkQuerySet.as_manager()

    class Meta:
        ordering = ("-id",)
        constraints = (
            models.CheckConstraint(
                condition=Q(expires_at__gt=F("made_at")), name="password_link_expires_later"
            ),
            models.CheckConstraint(
                condition=Q(kind__in=("reset", "invitation", "one_time")),
                name="password_link_is_one_of_three",
            ),
        )

    def __str__(self) -> str:
        return f"{self.kind} {self.pk}"
