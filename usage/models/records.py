"""The ledger of model calls."""

from datetime import datetime
from uuid import UUID, uuid4

from django.conf import settings
from django.db import models
from django.db.models import F, Func, Q

from usage.models.totals import none_negative

# Parts of the statement: once it is prepared, PostgreSQL knows of values not that a partial index serves them.
_OPEN = Func(template="'open'", output_field=models.CharField())
_LEFT = Func(template="'client_gone'", output_field=models.CharField())
_UNREAD = Func(template="'answer_unread'", output_field=models.CharField())


class UsageRecordQuerySet(models.QuerySet["UsageRecord"]):
    def open(self) -> "UsageRecordQuerySet":
        return self.filter(state=_OPEN)

    def abandoned(self, *, at: datetime) -> "UsageRecordQuerySet":
        """Open records with an expired reservation, whose process must have died."""
        return self.open().filter(expires_at__lte=at)

    def unread(self) -> "UsageRecordQuerySet":
        """Calls whose answers could not be read, which cost what their ends say, or their reservations."""
        return self.filter(end=_UNREAD)

    def left(self) -> "UsageRecordQuerySet":
        """Calls whose client has left."""
        return self.filter(end=_LEFT)


class UsageRecord(models.Model):
    """One model call, without content. Opened with the most it may use, and settled exactly once to its usage."""

    class State(models.TextChoices):
        OPEN = "open", "running"
        SETTLED = "settled", "settled"

    class Source(models.TextChoices):
        """The source of the settled numbers."""

        PROVIDER = "provider", "the provider's report"
        COUNTED = "counted", "counted during delivery"
        ESTIMATED = "estimated", "estimated"

    class End(models.TextChoices):
        DONE = "done", "done"
        CLIENT_GONE = "client_gone", "caller disconnected"
        PROVIDER_FAILED = "provider_failed", "provider failed"
        UNREAD = "answer_unread", "answer could not be read"
        TIMEOUT = "timeout", "timed out"
        STOPPED = "stopped", "stopped by an operator or a revocation"
        CRASHED = "crashed", "the worker died"

    id = models.UUIDField(primary_key=True, default=uuid4, editable=False)
    # Its index is the one by month, which begins with it.
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="usage", db_index=False
    )
    client_id = models.UUIDField(help_text="The client of the user at the time.")
    session_id = models.UUIDField(null=True)
    key_id = models.UUIDField(null=True, help_text="The personal key of the call, if it had one.")
    period = models.DateField(help_text="First day of the calendar month (UTC) of admission.")
    day = models.DateField(help_text="Day (UTC) of admission.")
    model = models.CharField(max_length=120)
    provider = models.CharField(max_length=40)
    request_id = models.CharField(max_length=64, blank=True)
    labels = models.JSONField(
        null=True,
        editable=False,
        help_text="What the caller said the call is for: its `user` and `metadata`.",
    )
    streamed = models.BooleanField()
    state = models.CharField(max_length=8, choices=State, default=State.OPEN)
    reserved_input = models.BigIntegerField()
    reserved_output = models.BigIntegerField()
    input_tokens = models.BigIntegerField(default=0)
    cached_input_tokens = models.BigIntegerField(default=0)
    cached_input_percent = models.SmallIntegerField(
        default=100,
        db_default=100,
        help_text="How much of the cached input counts towards the caps, by the plan at admission.",
    )
    capped_input = models.BigIntegerField(
        null=True, help_text="The input that counts towards the caps; empty: all of it."
    )
    cache_write_tokens = models.BigIntegerField(default=0, db_default=0)
    output_tokens = models.BigIntegerField(default=0)
    reasoning_tokens = models.BigIntegerField(default=0)
    counted_input = models.BigIntegerField(
        null=True, help_text="The prompt as its tokenizer counted it, before the model's factor."
    )
    input_price = models.BigIntegerField(
        null=True, help_text="At admission, in millionths of a dollar per million tokens."
    )
    cached_input_price = models.BigIntegerField(null=True)
    output_price = models.BigIntegerField(null=True)
    cache_write_price = models.BigIntegerField(null=True)
    cost = models.BigIntegerField(
        null=True, help_text="In millionths of a dollar, fixed at settlement; empty without prices."
    )
    abandoned = models.JSONField(
        null=True,
        editable=False,
        help_text="The attempts that ended without an answer although their providers may bill them: a list of "
        "provider, prices, tokens, cost, whether it was reported, and times. Their cost is the client's.",
    )
    failures = models.JSONField(
        null=True,
        editable=False,
        help_text="The attempts that failed, with what their providers said, and what the caller was told.",
    )
    error_code = models.CharField(  # noqa: DJ001 - an index of failed calls leaves out the others
        max_length=64,
        null=True,
        editable=False,
        help_text="The code of the problem that ended it; empty where it had an answer or nobody was told.",
    )
    is_implausible = models.BooleanField(
        "implausible report",
        default=False,
        db_default=False,
        help_text="The provider reported far more than the prompt and the output limit explain.",
    )
    as_settled = models.JSONField(
        null=True,
        editable=False,
        help_text="Tokens and cost as they were settled, where an operator has lowered them since.",
    )
    source = models.CharField(max_length=9, choices=Source, blank=True)
    end = models.CharField(max_length=15, choices=End, blank=True)
    checkpoint_input = models.BigIntegerField(
        null=True, help_text="While it runs: what it has cost so far, as its process last said."
    )
    checkpoint_output = models.BigIntegerField(null=True)
    checkpoint_cached = models.BigIntegerField(null=True)
    opened_at = models.DateTimeField(help_text="When it was admitted.")
    first_byte_at = models.DateTimeField(
        null=True, help_text="When the provider began to answer; empty if it never did."
    )
    first_output_at = models.DateTimeField(
        null=True,
        editable=False,
        help_text="When the first output of a stream came; empty for an answer in one piece.",
    )
    checkpoint_at = models.DateTimeField(
        null=True, help_text="When its process last said that it runs, by the database's clock."
    )
    expires_at = models.DateTimeField()
    settled_at = models.DateTimeField(null=True)
    told_to_end_at = models.DateTimeField(
        null=True, editable=False, help_text="When an operator told this one call to end."
    )
    client_left_at = models.DateTimeField(
        null=True,
        editable=False,
        help_text="When its client had left and its whole answer was read on.",
    )

    user_id: UUID

    objects = UsageRecordQuerySet.as_manager()

    class Meta:
        verbose_name = "call"
        ordering = ("-opened_at", "id")
        constraints = (
            models.CheckConstraint(
                condition=Q(state="open", settled_at=None, source="", end="")
                | (Q(state="settled", settled_at__isnull=False) & ~Q(source="") & ~Q(end="")),
                name="usage_settled_says_how",
            ),
            models.CheckConstraint(
                condition=Q(checkpoint_input=None, checkpoint_output=None)
                | Q(
                    checkpoint_at__isnull=False,
                    checkpoint_input__isnull=False,
                    checkpoint_output__isnull=False,
                ),
                name="usage_checkpoint_is_whole",
            ),
            models.CheckConstraint(
                condition=Q(capped_input=None) | Q(capped_input__lte=F("input_tokens")),
                name="usage_capped_input_is_a_part",
            ),
            models.CheckConstraint(
                condition=none_negative(
                    "reserved_input",
                    "reserved_output",
                    "input_tokens",
                    "cached_input_tokens",
                    "output_tokens",
                    "reasoning_tokens",
                    "checkpoint_input",
                    "checkpoint_output",
                    "counted_input",
                    "input_price",
                    "cached_input_price",
                    "output_price",
                    "cost",
                    "cache_write_tokens",
                    "cache_write_price",
                    "capped_input",
                    "checkpoint_cached",
                ),
                name="usage_tokens_not_below_zero",
            ),
        )
        indexes = (
            # Serves a person's month alone: their calls are scattered over the table.
            models.Index(
                fields=("user", "period", "day", "model"),
                include=("input_tokens", "output_tokens"),
                name="usage_series_of_a_month",
            ),
            # Beside it, for those of a person that were left.
            models.Index(
                fields=("user", "period", "day", "model"),
                condition=Q(end="client_gone"),
                name="usage_left_by_month",
            ),
            models.Index(
                fields=("expires_at",), condition=Q(state="open"), name="usage_open_by_expiry"
            ),
            # Sums a client's month by itself.
            models.Index(
                fields=("client_id", "period"), include=("cost",), name="usage_by_client_and_month"
            ),
            # For the cost of abandoned attempts; few calls have any.
            models.Index(
                fields=("client_id", "period"),
                condition=Q(abandoned__isnull=False),
                name="usage_with_abandoned",
            ),
            # For what one key has used; most calls have none.
            models.Index(
                fields=("key_id", "period"),
                condition=Q(key_id__isnull=False),
                name="usage_by_key_and_month",
            ),
            # For operators' lists and searches, the newest first: of all, of a model and of a client. The last two
            # leave out ordinary calls.
            models.Index(fields=("opened_at",), name="usage_by_time"),
            models.Index(fields=("model", "opened_at"), name="usage_by_model_and_time"),
            models.Index(fields=("client_id", "opened_at"), name="usage_by_client_and_time"),
            models.Index(
                fields=("request_id",), condition=~Q(request_id=""), name="usage_by_request"
            ),
            models.Index(
                fields=("end", "opened_at"),
                condition=~Q(end="") & ~Q(end="done"),
                name="usage_ended_otherwise",
            ),
            models.Index(
                fields=("source", "opened_at"),
                condition=~Q(source="") & ~Q(source="provider"),
                name="usage_not_reported",
            ),
        )

    def __str__(self) -> str:
        return f"{self.model} {self.opened_at:%Y-%m-%d %H:%M}"


class RunningCallManager(models.Manager["RunningCall"]):
    def get_queryset(self) -> models.QuerySet["RunningCall"]:
        return super().get_queryset().filter(state=_OPEN)


class RunningCall(UsageRecord):
    """An open record: a running call, or one whose process has died and that a worker will settle."""

    objects = RunningCallManager()  # type: ignore[assignment, misc]

    class Meta:
        proxy = True
        verbose_name = "running call"
        ordering = ("opened_at", "id")

    def __str__(self) -> str:
        return f"{self.model} since {self.opened_at:%H:%M:%S}"
