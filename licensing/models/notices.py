"""Notices to shells: of a client, on its licence, or of the service."""

from django.db import models
from django.db.models import Q

from config.platform.runtime.clock import is_readable
from config.platform.text.versions import MAX_LENGTH

MAX_MESSAGE = 500

# Each table's own name is in theirs.
OF_NOTICES: tuple[models.BaseConstraint, ...] = (
    models.CheckConstraint(
        condition=Q(message_id=None, message_text="", message_level="", message_until=None)
        | (Q(message_id__isnull=False) & ~Q(message_text="") & ~Q(message_level="")),
        name="%(class)s_message_is_whole",
    ),
    models.CheckConstraint(
        condition=is_readable("message_until"), name="%(class)s_message_end_is_readable"
    ),
)


class ShellNotice(models.Model):
    """A notice to shells: the least version that may run, a message, and the source of their updates.

    Each of the three is a client's own, on its licence, or else the service's. Shells older than these members ignore
    them, and the service refuses nobody by version.
    """

    class Level(models.TextChoices):
        INFO = "info", "Information"
        WARNING = "warning", "Warning"
        CRITICAL = "critical", "Critical"

    minimum_version = models.CharField(
        max_length=MAX_LENGTH,
        blank=True,
        default="",
        db_default="",
        help_text="A shell below it shows only its update screen. Empty: any version works.",
    )
    # Another one for each text, so that a shell knows which ones its person has closed.
    message_id = models.UUIDField(null=True, blank=True, editable=False)
    message_level = models.CharField(
        max_length=10, choices=Level, blank=True, default="", db_default=""
    )
    message_text = models.CharField(
        max_length=MAX_MESSAGE, blank=True, default="", db_default="", help_text="Plain text."
    )
    message_until = models.DateTimeField(
        null=True, blank=True, help_text="When shells stop showing it. Empty: until it is removed."
    )
    shell_channel = models.CharField(
        max_length=40,
        blank=True,
        default="",
        db_default="",
        help_text="The channel that shells update from. Empty: the one they were built for.",
    )
    shell_version = models.CharField(
        max_length=MAX_LENGTH,
        blank=True,
        default="",
        db_default="",
        help_text="The version that shells are pinned to. Empty: the newest of the channel.",
    )

    class Meta:
        abstract = True


class ServiceNotice(ShellNotice):
    """The notice to the shells of all clients, unless their licence has one of its own: one row."""

    THE_ONE = "service"

    id = models.CharField(primary_key=True, max_length=10, default=THE_ONE, editable=False)

    class Meta:
        ordering = ("id",)
        verbose_name = "notice to all shells"
        verbose_name_plural = "notices to all shells"
        constraints = (
            *OF_NOTICES,
            models.CheckConstraint(condition=Q(id="service"), name="servicenotice_is_one"),
        )

    def __str__(self) -> str:
        return "all shells"
