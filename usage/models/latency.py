"""The latency and errors of hours, as the worker last counted them."""

from django.db import models


class HourLatency(models.Model):
    """The settled calls that were admitted in one hour, of one model and provider.

    Times are counts by bucket (``usage.latency.buckets``), so that hours add up and still have percentiles.
    """

    KEY = ("hour", "model", "provider")

    hour = models.DateTimeField()
    model = models.CharField(max_length=120)
    provider = models.CharField(max_length=40)
    calls = models.BigIntegerField(default=0)
    errors = models.BigIntegerField(default=0)
    failed_attempts = models.BigIntegerField(
        default=0,
        help_text="Attempts at this provider that failed, of calls that others may have answered.",
    )
    output_tokens = models.BigIntegerField(default=0, help_text="Of streams that were done.")
    output_ms = models.BigIntegerField(
        default=0, help_text="From their first output to their ends."
    )
    first = models.JSONField(
        default=dict,
        help_text="Calls that were done by their time to first output: the number of each bucket.",
    )
    whole = models.JSONField(
        default=dict, help_text="The same calls by the time of the whole answer."
    )

    class Meta:
        ordering = ("-hour", "id")
        constraints = (
            models.UniqueConstraint(
                fields=("hour", "model", "provider"), name="one_row_of_hour_latency"
            ),
        )

    def __str__(self) -> str:
        return f"{self.model} {self.hour:%Y-%m-%d %H}"
