"""Mailed links and one-time passwords, which let a person set a password without the current one."""

from datetime import datetime
from uuid import UUID

from django.db import models
from django.db.models import F, Q

from accounts.models.people import User


class PasswordLinkQuerySet(models.QuerySet["PasswordLink"]):
    def live(self, *, at: datetime) -> "PasswordLinkQuerySet":
        """Valid links: unused, the newest of their kind, of a person who may sign in.

        A revocation, and with it every new password, moves the person's epoch and voids all earlier links.
        """
        # A used link does not count as newer: its mail was not accepted, or it has moved the epoch.
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
    """A mailed link or one-time password. Its secret is stored as a SHA-256 hash, which suffices for random bits."""

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
    # Or, until its mail is accepted, when it was made.
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
