"""What has been published for the shell, where it is live, and who is publishing just now."""

import re
from datetime import datetime, timedelta
from uuid import uuid4

from django.contrib.postgres.fields import ArrayField
from django.db import models

from accounts.models import User
from releases.versions import Version

CHANNEL = r"^[a-z0-9]+(-[a-z0-9]+)*$"
CHANNEL_LENGTH = 40
# Which one is said by id, because a row of the history outlives a person's name. No pipeline is called so.
AN_OPERATOR = "an operator"
_OPERATOR = rf"^{AN_OPERATOR}( ([0-9a-f]{{8}}(-[0-9a-f]{{4}}){{3}}-[0-9a-f]{{12}}))?$"


class ShellChannel(models.Model):
    """A channel of releases, and the lease of the one publish that may be under way on it.

    ``fence`` counts leases: whoever holds the newest one may write, and nobody else. An old holder that wakes
    up late finds that its number is no longer the channel's.
    """

    name = models.SlugField(primary_key=True, max_length=CHANNEL_LENGTH)
    fence = models.BigIntegerField(default=0)
    leased_until = models.DateTimeField(null=True, blank=True)
    halted_at = models.DateTimeField(
        null=True, blank=True, help_text="Since when an operator has it offer nothing."
    )
    unplaced_since = models.DateTimeField(
        null=True,
        blank=True,
        help_text="When it was to offer something else, until storage has that.",
    )

    class Meta:
        ordering = ("name",)
        constraints = (
            models.CheckConstraint(
                condition=models.Q(name__regex=CHANNEL),
                name="shell_channel_name_is_a_plain_word",
            ),
        )

    def __str__(self) -> str:
        return self.name


class ShellRelease(models.Model):
    """One version of one channel: its document byte for byte, which never changes."""

    channel = models.ForeignKey(ShellChannel, on_delete=models.PROTECT, related_name="releases")
    version = models.CharField(max_length=120)
    manifest = models.BinaryField(help_text="The document exactly as it was published.")
    manifest_sha256 = models.CharField(max_length=64)
    platforms = ArrayField(models.CharField(max_length=40), help_text="The ids it offers.")
    published_at = models.DateTimeField(help_text="When it was published for the first time.")
    published_by = models.CharField(max_length=120)

    class Meta:
        ordering = ("-published_at", "-id")
        constraints = (
            models.UniqueConstraint(
                fields=("channel", "version"), name="one_release_per_channel_and_version"
            ),
            models.CheckConstraint(
                condition=models.Q(manifest_sha256__regex=r"^[0-9a-f]{64}$"),
                name="release_sha256_is_lower_hex",
            ),
        )

    def __str__(self) -> str:
        return f"{self.channel_id} {self.version}"

    @property
    def parsed_version(self) -> Version:
        return Version.parse(self.version)


class ShellArtifact(models.Model):
    """What was found at an artifact's address when its release was published."""

    release = models.ForeignKey(ShellRelease, on_delete=models.CASCADE, related_name="artifacts")
    platform = models.CharField(max_length=40)
    url = models.TextField()
    sha256 = models.CharField(max_length=64)
    size = models.BigIntegerField(help_text="Bytes.")
    cache_control = models.CharField(
        max_length=200, blank=True, help_text="As the CDN answered; empty where it had none."
    )

    class Meta:
        ordering = ("release", "platform")
        constraints = (
            models.UniqueConstraint(
                fields=("release", "platform"), name="one_artifact_per_release_and_platform"
            ),
            models.CheckConstraint(
                condition=models.Q(sha256__regex=r"^[0-9a-f]{64}$"),
                name="artifact_sha256_is_lower_hex",
            ),
            models.CheckConstraint(
                condition=models.Q(size__gt=0), name="artifact_size_is_positive"
            ),
        )

    def __str__(self) -> str:
        return f"{self.release} {self.platform}"


class PublicationQuerySet(models.QuerySet["Publication"]):
    """Questions to the history of the channels."""

    def of(self, channel: str) -> "PublicationQuerySet":
        """A channel's, the newest first, with their releases."""
        ours = self.filter(release__channel=channel)
        return ours.select_related("release").order_by("-pk")

    def stored(self) -> "PublicationQuerySet":
        return self.filter(stored_at__isnull=False)

    def wanted(self) -> "PublicationQuerySet":
        """What storage has, or has to get because an operator said so.

        Not what a pipeline began and did not finish: only its own repeat puts that live.
        """
        said = models.Q(published_by__regex=_OPERATOR)
        return self.filter(models.Q(stored_at__isnull=False) | said)


class Publication(models.Model):
    """One time that a release was made a channel's current one: first, again after a rollback, or signed anew.

    The newest of a channel is the last one published. The newest with ``stored_at`` is what it serves: without
    it, storing has begun and was not finished, so readers may have seen either.
    """

    release = models.ForeignKey(ShellRelease, on_delete=models.PROTECT, related_name="publications")
    signature = models.BinaryField(help_text="The manifest's minisign file.")
    signed_at = models.DateTimeField(help_text="As the trusted comment says.")
    published_at = models.DateTimeField()
    published_by = models.CharField(max_length=120)
    stored_at = models.DateTimeField(
        null=True, help_text="When storage had it; empty while that is under way."
    )

    objects = PublicationQuerySet.as_manager()

    class Meta:
        ordering = ("-id",)
        indexes = (models.Index(fields=("release", "-id"), name="publication_of_release"),)

    def __str__(self) -> str:
        return f"{self.release} at {self.published_at}"

    @property
    def publisher(self) -> str:
        """Who published, in words; an operator by the email of now, which an erased one has no more."""
        operator = re.match(_OPERATOR, self.published_by)
        if operator is None:
            return self.published_by
        emails = User.objects.filter(pk=operator[2]).values_list("email", flat=True)
        return emails.first() or AN_OPERATOR


class PurgeQuerySet(models.QuerySet["Purge"]):
    """Questions to what a CDN was asked to forget."""

    def newest(self) -> "PurgeQuerySet":
        """The last one of each channel; what came before it counts no more."""
        return self.order_by("channel_id", "-pk").distinct("channel_id")


class Purge(models.Model):
    """A CDN has to forget what it keeps of a channel, and to serve something else from then on.

    ``confirmed_at``: when the public address was seen to serve that. Until then it is tried again and again; only a
    newer one of the same channel ends it without that.
    """

    # What a CDN says that has been told and is not done, and how long that may be so: most need a minute or two.
    UNDER_WAY = "under_way"
    MAY_TAKE = timedelta(minutes=5)

    channel = models.ForeignKey(ShellChannel, on_delete=models.PROTECT, related_name="purges")
    publication = models.ForeignKey(
        Publication,
        on_delete=models.PROTECT,
        related_name="purges",
        null=True,
        help_text="What it has to serve; empty: nothing, because the channel was halted.",
    )
    reference = models.UUIDField(
        default=uuid4, help_text="What this is called at the CDN, which does the same thing once."
    )
    rounds = models.PositiveIntegerField(
        default=0, help_text="How often the CDN said that it was done and was not."
    )
    asked_at = models.DateTimeField()
    attempts = models.PositiveIntegerField(default=0)
    tried_at = models.DateTimeField(null=True)
    due_at = models.DateTimeField(help_text="When the next try is queued for.")
    failure = models.CharField(max_length=40, blank=True)
    told_at = models.DateTimeField(null=True, help_text="When operators were mailed about it.")
    confirmed_at = models.DateTimeField(null=True)

    objects = PurgeQuerySet.as_manager()

    class Meta:
        ordering = ("-id",)
        indexes = (models.Index(fields=("channel", "-id"), name="purge_of_channel"),)

    def __str__(self) -> str:
        return f"{self.channel_id} at {self.asked_at}"

    @property
    def failed(self) -> bool:
        """Whether it was tried in vain and is not over."""
        if self.confirmed_at is not None or self.tried_at is None:
            return False
        return not self.takes_its_time(self.failure, at=self.tried_at)

    def takes_its_time(self, failure: str, *, at: datetime) -> bool:
        """Whether nothing is wrong but that it is not over."""
        return failure == self.UNDER_WAY and at < self.asked_at + self.MAY_TAKE
