"""The ledger, its totals and what limits them, as release 1f2697d had them."""

from uuid import uuid4

from django.conf import settings
from django.db import migrations, models
from django.db.models import F, Q
from django.db.models.functions import Least
from django.db.models.lookups import GreaterThanOrEqual
from django.utils import timezone

from config.platform.db.uuid7 import timed_uuid

MONTHLY_USAGE = {
    "id": models.BigAutoField(
        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
    ),
    "period": models.DateField(),
    "input_used": models.BigIntegerField(default=0),
    "input_reserved": models.BigIntegerField(default=0),
    "output_used": models.BigIntegerField(default=0),
    "output_reserved": models.BigIntegerField(default=0),
    "day": models.DateField(),
    "day_used": models.BigIntegerField(default=0),
    "day_reserved": models.BigIntegerField(default=0),
    "granted": models.BigIntegerField(default=0),
    "user": models.ForeignKey(
        db_index=False,
        on_delete=models.PROTECT,
        related_name="monthly_usage",
        to=settings.AUTH_USER_MODEL,
    ),
    "input_cap": models.BigIntegerField(null=True),
    "output_cap": models.BigIntegerField(null=True),
}
MONTHLY_USAGE_OPTIONS = {
    "verbose_name_plural": "monthly usage",
    "ordering": ("-period", "user"),
    "constraints": [
        models.UniqueConstraint(fields=("user", "period"), name="one_usage_row_per_user_and_month"),
        models.CheckConstraint(
            condition=GreaterThanOrEqual(
                Least(
                    "input_used",
                    "input_reserved",
                    "output_used",
                    "output_reserved",
                    "day_used",
                    "day_reserved",
                    "granted",
                    "input_cap",
                    "output_cap",
                ),
                0,
            ),
            name="usage_totals_not_below_zero",
        ),
    ],
    "indexes": [
        models.Index(fields=["period", "id"], name="usage_months"),
    ],
}
OVERRIDE = {
    "id": models.BigAutoField(
        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
    ),
    "monthly_input_tokens": models.PositiveBigIntegerField(blank=True, null=True),
    "monthly_output_tokens": models.PositiveBigIntegerField(blank=True, null=True),
    "daily_tokens": models.PositiveBigIntegerField(blank=True, null=True),
    "starts_at": models.DateTimeField(default=timezone.now),
    "ends_at": models.DateTimeField(),
    "reason": models.TextField(),
    "user": models.ForeignKey(
        on_delete=models.CASCADE, related_name="overrides", to=settings.AUTH_USER_MODEL
    ),
    "is_extra": models.BooleanField(db_default=False, default=False, verbose_name="on top"),
}
OVERRIDE_OPTIONS = {
    "ordering": ("-ends_at", "-id"),
    "indexes": [
        models.Index(fields=["user", "ends_at"], name="override_by_user_and_end"),
    ],
    "constraints": [
        models.CheckConstraint(
            condition=Q(("ends_at__gt", F("starts_at"))), name="override_ends_after_it_starts"
        ),
        models.CheckConstraint(
            condition=Q(("reason", ""), _negated=True), name="override_gives_a_reason"
        ),
    ],
}
USAGE_RECORD = {
    "id": models.UUIDField(default=uuid4, editable=False, primary_key=True, serialize=False),
    "client_id": models.UUIDField(help_text="The client of the user at the time."),
    "session_id": models.UUIDField(null=True),
    "period": models.DateField(help_text="First day of the calendar month (UTC) of admission."),
    "day": models.DateField(help_text="Day (UTC) of admission."),
    "model": models.CharField(max_length=120),
    "provider": models.CharField(max_length=40),
    "request_id": models.CharField(blank=True, max_length=64),
    "streamed": models.BooleanField(),
    "state": models.CharField(
        choices=[("open", "running"), ("settled", "settled")], default="open", max_length=8
    ),
    "reserved_input": models.BigIntegerField(),
    "reserved_output": models.BigIntegerField(),
    "input_tokens": models.BigIntegerField(default=0),
    "cached_input_tokens": models.BigIntegerField(default=0),
    "output_tokens": models.BigIntegerField(default=0),
    "reasoning_tokens": models.BigIntegerField(default=0),
    "source": models.CharField(
        blank=True,
        choices=[
            ("provider", "the provider's report"),
            ("counted", "counted while it was delivered"),
            ("estimated", "estimated"),
        ],
        max_length=9,
    ),
    "end": models.CharField(
        blank=True,
        choices=[
            ("done", "done"),
            ("client_gone", "the client left"),
            ("provider_failed", "the provider failed"),
            ("timeout", "timed out"),
            ("stopped", "stopped by an operator or a revocation"),
            ("crashed", "the worker died"),
        ],
        max_length=15,
    ),
    "opened_at": models.DateTimeField(help_text="When it was admitted."),
    "expires_at": models.DateTimeField(),
    "settled_at": models.DateTimeField(null=True),
    "user": models.ForeignKey(
        db_index=False, on_delete=models.PROTECT, related_name="usage", to=settings.AUTH_USER_MODEL
    ),
    "checkpoint_input": models.BigIntegerField(
        help_text="While it runs: what it has cost so far, as its process last said.", null=True
    ),
    "checkpoint_output": models.BigIntegerField(null=True),
    "first_byte_at": models.DateTimeField(
        help_text="When the provider began to answer; empty if it never did.", null=True
    ),
    "checkpoint_at": models.DateTimeField(
        help_text="When its process last said that it runs, by the database's clock.", null=True
    ),
    "told_to_end_at": models.DateTimeField(
        editable=False, help_text="When an operator told this one call to end.", null=True
    ),
    "cached_input_price": models.BigIntegerField(null=True),
    "cost": models.BigIntegerField(
        help_text="In millionths of a dollar, fixed at settlement; empty without prices.", null=True
    ),
    "counted_input": models.BigIntegerField(
        help_text="The prompt as its tokenizer counted it, before the model's factor.", null=True
    ),
    "input_price": models.BigIntegerField(
        help_text="At admission, in millionths of a dollar per million tokens.", null=True
    ),
    "output_price": models.BigIntegerField(null=True),
    "client_left_at": models.DateTimeField(
        editable=False,
        help_text="When its client had left and its whole answer was read on.",
        null=True,
    ),
    "labels": models.JSONField(
        editable=False,
        help_text="What the caller said the call is for: its `user` and `metadata`.",
        null=True,
    ),
    "key_id": models.UUIDField(help_text="The personal key of the call, if it had one.", null=True),
    "cache_write_tokens": models.BigIntegerField(db_default=0, default=0),
    "cache_write_price": models.BigIntegerField(null=True),
}
USAGE_RECORD_OPTIONS = {
    "ordering": ("-opened_at", "id"),
    "indexes": [
        models.Index(
            condition=Q(("state", "open")), fields=["expires_at"], name="usage_open_by_expiry"
        ),
        models.Index(
            fields=["user", "period", "day", "model"],
            include=("input_tokens", "output_tokens"),
            name="usage_series_of_a_month",
        ),
        models.Index(fields=["opened_at"], name="usage_by_time"),
        models.Index(fields=["model"], name="usage_by_model"),
        models.Index(
            condition=Q(("request_id", ""), _negated=True),
            fields=["request_id"],
            name="usage_by_request",
        ),
        models.Index(
            condition=Q(Q(("end", ""), _negated=True), Q(("end", "done"), _negated=True)),
            fields=["end", "opened_at"],
            name="usage_ended_otherwise",
        ),
        models.Index(
            condition=Q(Q(("source", ""), _negated=True), Q(("source", "provider"), _negated=True)),
            fields=["source", "opened_at"],
            name="usage_not_reported",
        ),
        models.Index(
            fields=["client_id", "period"], include=("cost",), name="usage_by_client_and_month"
        ),
        models.Index(
            condition=Q(("end", "client_gone")),
            fields=["user", "period", "day", "model"],
            name="usage_left_by_month",
        ),
        models.Index(
            condition=Q(("key_id__isnull", False)),
            fields=["key_id", "period"],
            name="usage_by_key_and_month",
        ),
    ],
    "constraints": [
        models.CheckConstraint(
            condition=Q(
                Q(("end", ""), ("settled_at", None), ("source", ""), ("state", "open")),
                Q(
                    ("settled_at__isnull", False),
                    ("state", "settled"),
                    Q(("source", ""), _negated=True),
                    Q(("end", ""), _negated=True),
                ),
                _connector="OR",
            ),
            name="usage_settled_says_how",
        ),
        models.CheckConstraint(
            condition=Q(
                Q(("checkpoint_input", None), ("checkpoint_output", None)),
                Q(
                    ("checkpoint_at__isnull", False),
                    ("checkpoint_input__isnull", False),
                    ("checkpoint_output__isnull", False),
                ),
                _connector="OR",
            ),
            name="usage_checkpoint_is_whole",
        ),
        models.CheckConstraint(
            condition=GreaterThanOrEqual(
                Least(
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
                ),
                0,
            ),
            name="usage_tokens_not_below_zero",
        ),
    ],
}
STOP = {
    "user": models.OneToOneField(
        on_delete=models.CASCADE,
        primary_key=True,
        related_name="model_calls_stop",
        serialize=False,
        to=settings.AUTH_USER_MODEL,
    ),
    "stopped_at": models.DateTimeField(),
    "ends_at": models.DateTimeField(help_text="Empty: until an operator takes it back.", null=True),
    "reason": models.TextField(),
}
STOP_OPTIONS = {
    "ordering": ("-stopped_at", "user"),
    "constraints": [
        models.CheckConstraint(
            condition=Q(("reason", ""), _negated=True), name="stop_gives_a_reason"
        ),
        models.CheckConstraint(
            condition=Q(("ends_at", None), ("ends_at__gt", F("stopped_at")), _connector="OR"),
            name="stop_ends_after_it_starts",
        ),
    ],
}
ALERT = {
    "id": models.BigAutoField(
        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
    ),
    "kind": models.CharField(
        choices=[
            ("input", "80 % of the month's input tokens"),
            ("output", "80 % of the month's output tokens"),
            ("input_all", "all of the month's input tokens"),
            ("output_all", "all of the month's output tokens"),
            ("day", "the daily limit"),
            ("percentile", "95th percentile of shares at 80 %"),
            ("abandoned", "many abandoned calls"),
            ("report", "an implausible report by the provider"),
        ],
        max_length=10,
    ),
    "period": models.DateField(
        help_text="First day of the month; of the daily limit, the day (UTC)."
    ),
    "used": models.PositiveBigIntegerField(),
    "cap": models.PositiveBigIntegerField(),
    "noticed_at": models.DateTimeField(),
    "told_at": models.DateTimeField(null=True),
    "user": models.ForeignKey(
        db_index=False,
        null=True,
        on_delete=models.CASCADE,
        related_name="usage_alerts",
        to=settings.AUTH_USER_MODEL,
    ),
}
ALERT_OPTIONS = {
    "ordering": ("-noticed_at", "-id"),
    "indexes": [
        models.Index(condition=Q(("told_at", None)), fields=["id"], name="alerts_waiting"),
        models.Index(fields=["told_at"], name="alerts_by_telling"),
    ],
    "constraints": [
        models.UniqueConstraint(
            fields=("user", "kind", "period"),
            name="one_alert_of_a_kind_for_a_person_and_period",
            nulls_distinct=False,
        ),
        models.CheckConstraint(
            condition=Q(
                Q(("kind", "percentile"), ("user", None)),
                Q(Q(("kind", "percentile"), _negated=True), ("user__isnull", False)),
                _connector="OR",
            ),
            name="alert_is_about_a_person_or_all",
        ),
    ],
}
BUDGET = {
    "client": models.OneToOneField(
        on_delete=models.CASCADE,
        primary_key=True,
        related_name="budget",
        serialize=False,
        to="accounts.client",
    ),
    "monthly": models.PositiveBigIntegerField(help_text="In millionths of a dollar."),
    "period": models.DateField(help_text="First day of the month that was last summed.", null=True),
    "spent": models.PositiveBigIntegerField(
        default=0, help_text="In that month, when last summed."
    ),
    "summed_at": models.DateTimeField(null=True),
    "warned_at": models.DateTimeField(null=True),
    "exceeded_at": models.DateTimeField(null=True),
}
KEY_MONTH = {
    "id": models.BigAutoField(
        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
    ),
    "key_id": models.UUIDField(),
    "period": models.DateField(),
    "output_used": models.BigIntegerField(default=0),
    "output_reserved": models.BigIntegerField(default=0),
    "output_cap": models.BigIntegerField(help_text="The cap of the latest admission."),
}
KEY_MONTH_OPTIONS = {
    "ordering": ("-period", "key_id"),
    "constraints": [
        models.UniqueConstraint(fields=("key_id", "period"), name="one_row_per_key_and_month"),
        models.CheckConstraint(
            condition=GreaterThanOrEqual(Least("output_used", "output_reserved", "output_cap"), 0),
            name="key_totals_not_below_zero",
        ),
    ],
}
LEFT_ATTEMPT = {
    "id": models.UUIDField(default=timed_uuid, editable=False, primary_key=True, serialize=False),
    "provider": models.CharField(max_length=40),
    "input_tokens": models.BigIntegerField(),
    "output_tokens": models.BigIntegerField(help_text="What may have been made unseen."),
    "cost": models.BigIntegerField(
        help_text="In millionths of a dollar; empty without prices.", null=True
    ),
    "asked_at": models.DateTimeField(),
    "left_at": models.DateTimeField(),
    "record": models.ForeignKey(
        db_constraint=False,
        on_delete=models.DO_NOTHING,
        related_name="left_attempts",
        to="usage.usagerecord",
    ),
}
LEFT_ATTEMPT_OPTIONS = {
    "ordering": ("-left_at", "id"),
    "indexes": [
        models.Index(fields=["left_at"], name="left_attempt_by_time"),
    ],
    "constraints": [
        models.CheckConstraint(
            condition=GreaterThanOrEqual(Least("input_tokens", "output_tokens", "cost"), 0),
            name="left_attempt_not_below_zero",
        ),
    ],
}
# By default a table is only looked after once a fifth of it has changed, which in a ledger is months of calls. Totals
# are written twice a call: room in their pages keeps that from touching indexes and lets the next one clear up.
TEND = """
ALTER TABLE usage_usagerecord SET (
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_insert_scale_factor = 0.01,
    autovacuum_analyze_scale_factor = 0.01
);
ALTER TABLE usage_monthlyusage SET (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05);
"""


class Migration(migrations.Migration):
    replaces = [
        ("usage", "0001_initial"),
        ("usage", "0002_checkpoints"),
        ("usage", "0003_checkpoints_validated"),
        ("usage", "0004_stops_and_alerts"),
        ("usage", "0005_large_tables"),
        ("usage", "0006_one_constraint_for_a_calls_numbers"),
        ("usage", "0007_one_constraint_for_all_totals"),
        ("usage", "0008_numbers_without_constraints_of_their_own"),
        ("usage", "0009_counts_prices_and_budgets"),
        ("usage", "0010_numbers_validated"),
        ("usage", "0011_a_clients_month"),
        ("usage", "0012_calls_left_by_month"),
        ("usage", "0013_background_reads"),
        ("usage", "0014_labels"),
        ("usage", "0015_calls_may_have_a_key"),
        ("usage", "0016_calls_of_a_key"),
        ("usage", "0017_left_attempts"),
        ("usage", "0018_cache_writes"),
        ("usage", "0019_cache_writes_validated"),
    ]
    initial = True
    dependencies = [("accounts", "0001_squashed_0026_second_factors")]

    operations = [
        migrations.CreateModel("MonthlyUsage", list(MONTHLY_USAGE.items()), MONTHLY_USAGE_OPTIONS),
        migrations.CreateModel("Override", list(OVERRIDE.items()), OVERRIDE_OPTIONS),
        migrations.CreateModel("UsageRecord", list(USAGE_RECORD.items()), USAGE_RECORD_OPTIONS),
        migrations.CreateModel(
            "RunningCall",
            [],
            {
                "verbose_name": "call in flight",
                "verbose_name_plural": "calls in flight",
                "ordering": ("opened_at", "id"),
                "proxy": True,
            },
            bases=("usage.usagerecord",),
        ),
        migrations.CreateModel("Stop", list(STOP.items()), STOP_OPTIONS),
        migrations.CreateModel("Alert", list(ALERT.items()), ALERT_OPTIONS),
        migrations.CreateModel("Budget", list(BUDGET.items()), {"ordering": ("client",)}),
        migrations.CreateModel("KeyMonth", list(KEY_MONTH.items()), KEY_MONTH_OPTIONS),
        migrations.CreateModel("LeftAttempt", list(LEFT_ATTEMPT.items()), LEFT_ATTEMPT_OPTIONS),
        migrations.RunSQL(TEND, migrations.RunSQL.noop),
    ]
