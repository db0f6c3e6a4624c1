"""Channels, releases and publications of the shell, and purges of the CDN."""

import re
from datetime import datetime, timedelta
from uuid import uuid4

from django.contrib.postgres.fields import ArrayField
from django.db import models

from accounts.models import User
from config.platform.text.versions import Version

CHANNEL = r"^[a-z0-9]+(-[a-z0-9]+)*$"
CHANNEL_LENGTH = 40
# An id follows, because a publication outlives a person's name. No pipeline has this name.
AN_OPERATOR = "an operator"
# Percent of the shells; a publication with less is never in storage.
WHOLE = 100
_OPERATOR = rf"^{AN_OPERATOR}( ([0-9a-f]{{8}}(-[0-9a-f]{{4}}){{3}}-[0-9a-f]{{12}}))?$"


class ShellChannel(models.Model):
    """A channel of releases, and the lease of the one publish that may be in progress.

    ``fence`` counts leases: only the holder of the newest one may write. A holder that resumes late finds a newer
    number.
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
                condition=models.Q(name__regex=CHANNEL), name="shell_channel_name_is_a_plain_word"
            ),
        )

    def __str__(self) -> str:
        return self.name


class ShellRelease(models.Model):
    """One version of one channel, with its exact document, which never changes."""

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
    """A verified artifact, as the CDN served it when its release was published."""

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
    def of(self, channel: str) -> "PublicationQuerySet":
        """The publications of a channel with their releases, newest first."""
        ours = self.filter(release__channel=channel)
        return ours.select_related("release").order_by("-pk")

    def stored(self) -> "PublicationQuerySet":
        return self.filter(stored_at__isnull=False)

    def wanted(self) -> "PublicationQuerySet":
        """Stored publications, and those of operators that storage has to get.

        Excludes unfinished publications of pipelines: only a repeat of the pipeline finishes those.
        """
        said = models.Q(published_by__regex=_OPERATOR)
        return self.filter(models.Q(stored_at__isnull=False) | said)

    def by_pipelines(self) -> "PublicationQuerySet":
        """The publications that are publishes: an operator's offer a release that was published before."""
        return self.exclude(published_by__regex=_OPERATOR)

    def served(self) -> "PublicationQuerySet":
        """Stored publications, and those for a share of the shells that have not been ended."""
        begun = models.Q(share__lt=WHOLE, ended_at=None)
        return self.filter(models.Q(stored_at__isnull=False) | begun)

    def rollout(self) -> "Publication | None":
        """The publication of one channel that a share of its shells is offered: none with a later stored one."""
        newest = self.served().first()
        return newest if newest is not None and newest.is_partial else None


class Publication(models.Model):
    """One event that made a release its channel's current one: first, after a rollback, or with a new signature.

    A channel serves its newest publication with ``stored_at``. Without it, storing began and did not finish, so
    readers may have seen either. One with a ``share`` below 100 is offered to some shells by this service alone,
    until it is ended or a later one is stored.
    """

    release = models.ForeignKey(ShellRelease, on_delete=models.PROTECT, related_name="publications")
    signature = models.BinaryField(help_text="The manifest's minisign file.")
    signed_at = models.DateTimeField(help_text="As the trusted comment says.")
    published_at = models.DateTimeField()
    published_by = models.CharField(max_length=120)
    stored_at = models.DateTimeField(
        null=True, help_text="When storage had it; empty while that is under way."
    )
    share = models.PositiveSmallIntegerField(
        default=WHOLE, db_default=WHOLE, help_text="Percent of the shells that are offered it."
    )
    ended_at = models.DateTimeField(
        null=True, blank=True, help_text="When it was taken back from its share of the shells."
    )

    objects = PublicationQuerySet.as_manager()

    class Meta:
        ordering = ("-id",)
        indexes = (models.Index(fields=("release", "-id"), name="publication_of_release"),)
        constraints = (
            models.CheckConstraint(
                condition=models.Q(share__range=(1, WHOLE)), name="publication_share_is_a_percent"
            ),
            models.CheckConstraint(
                condition=models.Q(share=WHOLE, ended_at=None)
                | models.Q(share__lt=WHOLE, stored_at=None),
                name="publication_to_a_share_is_not_stored",
            ),
        )

    def __str__(self) -> str:
        return f"{self.release} at {self.published_at}"

    @property
    def is_partial(self) -> bool:
        return self.share < WHOLE

    @property
    def publisher(self) -> str:
        """The name of the publisher; for an operator the current email, which an erased one has lost."""
        operator = re.match(_OPERATOR, self.published_by)
        if operator is None:
            return self.published_by
        emails = User.objects.filter(pk=operator[2]).values_list("email", flat=True)
        return emails.first() or AN_OPERATOR


class PurgeQuerySet(models.QuerySet["Purge"]):
    def newest(self) -> "PurgeQuerySet":
        """The newest purge of each channel, the only one that counts."""
        return self.order_by("channel_id", "-pk").distinct("channel_id")


class Purge(models.Model):
    """A purge of a channel's files from the CDN.

    ``confirmed_at``: when the public address served the new content. Until then a worker repeats the purge, unless
    the channel gets a newer one.
    """

    # The failure while the CDN is still working, and how long it may take: usually a minute or two.
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
    def is_current(self) -> bool:
        """Returns whether the CDN has to serve nothing just while the channel is halted; else a newer purge follows."""
        return (self.publication_id is None) == (self.channel.halted_at is not None)

    @property
    def failed(self) -> bool:
        """Returns whether the last try failed."""
        if self.confirmed_at is not None or self.tried_at is None:
            return False
        return not self.takes_its_time(self.failure, at=self.tried_at)

    def takes_its_time(self, failure: str, *, at: datetime) -> bool:
        """Returns whether the CDN is still working within its time."""
        return failure == self.UNDER_WAY and at < self.asked_at + self.MAY_TAKE
