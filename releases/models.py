"""What has been published for the shell."""

from django.db import models


class ShellRelease(models.Model):
    """One published manifest of one channel, byte for byte. The newest row of a channel is what it serves."""

    channel = models.SlugField(max_length=40)
    version = models.CharField(max_length=120)
    manifest = models.BinaryField(help_text="The document exactly as it was published.")
    manifest_sha256 = models.CharField(max_length=64)
    published_at = models.DateTimeField()
    published_by = models.CharField(max_length=120)
    stored_at = models.DateTimeField(
        null=True, help_text="When storage had it; empty while that is under way."
    )

    class Meta:
        ordering = ("-published_at", "-id")
        constraints = (
            models.UniqueConstraint(
                fields=("channel", "version"), name="one_release_per_channel_and_version"
            ),
        )
        indexes = (
            models.Index(fields=("channel", "-published_at"), name="release_newest_of_channel"),
        )

    def __str__(self) -> str:
        return f"{self.channel} {self.version}"
