import django.db.models.deletion
from django.conf import settings
from django.contrib.postgres.operations import AddIndexConcurrently, RemoveIndexConcurrently
from django.db import migrations, models

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
UNTEND = """
ALTER TABLE usage_usagerecord RESET (
    autovacuum_vacuum_scale_factor, autovacuum_vacuum_insert_scale_factor, autovacuum_analyze_scale_factor
);
ALTER TABLE usage_monthlyusage RESET (fillfactor, autovacuum_vacuum_scale_factor);
"""


def without_index(model: str, related_name: str, index: str) -> migrations.SeparateDatabaseAndState:
    """Takes off the index of ``user`` that another index begins with, without keeping anybody waiting."""
    return migrations.SeparateDatabaseAndState(
        database_operations=[
            migrations.RunSQL(
                f"DROP INDEX CONCURRENTLY {index}",
                f"CREATE INDEX CONCURRENTLY {index} ON usage_{model} (user_id)",
            )
        ],
        state_operations=[
            migrations.AlterField(
                model_name=model,
                name="user",
                field=models.ForeignKey(
                    db_index=False,
                    on_delete=django.db.models.deletion.PROTECT,
                    related_name=related_name,
                    to=settings.AUTH_USER_MODEL,
                ),
            )
        ],
    )


class Migration(migrations.Migration):
    """A person's month and what operators look for are found by index. Built beside tables in use, which do not wait."""

    atomic = False

    dependencies = [
        ("usage", "0004_stops_and_alerts"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        AddIndexConcurrently(
            model_name="usagerecord",
            index=models.Index(
                fields=["user", "period", "day", "model"],
                include=("input_tokens", "output_tokens"),
                name="usage_series_of_a_month",
            ),
        ),
        RemoveIndexConcurrently(model_name="usagerecord", name="usage_by_user_and_month"),
        without_index("usagerecord", "usage", "usage_usagerecord_user_id_2f8497c4"),
        AddIndexConcurrently(
            model_name="usagerecord",
            index=models.Index(fields=["opened_at"], name="usage_by_time"),
        ),
        AddIndexConcurrently(
            model_name="usagerecord",
            index=models.Index(fields=["client_id"], name="usage_by_client"),
        ),
        AddIndexConcurrently(
            model_name="usagerecord",
            index=models.Index(fields=["model"], name="usage_by_model"),
        ),
        AddIndexConcurrently(
            model_name="usagerecord",
            index=models.Index(
                condition=models.Q(("request_id", ""), _negated=True),
                fields=["request_id"],
                name="usage_by_request",
            ),
        ),
        AddIndexConcurrently(
            model_name="usagerecord",
            index=models.Index(
                condition=models.Q(
                    models.Q(("end", ""), _negated=True), models.Q(("end", "done"), _negated=True)
                ),
                fields=["end", "opened_at"],
                name="usage_ended_otherwise",
            ),
        ),
        AddIndexConcurrently(
            model_name="usagerecord",
            index=models.Index(
                condition=models.Q(
                    models.Q(("source", ""), _negated=True),
                    models.Q(("source", "provider"), _negated=True),
                ),
                fields=["source", "opened_at"],
                name="usage_not_reported",
            ),
        ),
        without_index("monthlyusage", "monthly_usage", "usage_monthlyusage_user_id_dbd7850c"),
        AddIndexConcurrently(
            model_name="monthlyusage",
            index=models.Index(fields=["period", "id"], name="usage_months"),
        ),
        migrations.RunSQL(TEND, UNTEND),
    ]
