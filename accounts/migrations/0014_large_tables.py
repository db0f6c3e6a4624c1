from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models

# By default a table is only looked after once a fifth of it has changed, which in a large one is weeks of sessions.
# A session is noted as used at every refresh; room in its page keeps that from touching its indexes.
TEND = """
ALTER TABLE accounts_auditevent SET (
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_insert_scale_factor = 0.01,
    autovacuum_analyze_scale_factor = 0.01
);
ALTER TABLE accounts_refreshtoken SET (
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_insert_scale_factor = 0.01,
    autovacuum_analyze_scale_factor = 0.01
);
ALTER TABLE accounts_session SET (
    fillfactor = 80,
    autovacuum_vacuum_scale_factor = 0.05,
    autovacuum_analyze_scale_factor = 0.02
);
"""
UNTEND = """
ALTER TABLE accounts_auditevent RESET (
    autovacuum_vacuum_scale_factor, autovacuum_vacuum_insert_scale_factor, autovacuum_analyze_scale_factor
);
ALTER TABLE accounts_refreshtoken RESET (
    autovacuum_vacuum_scale_factor, autovacuum_vacuum_insert_scale_factor, autovacuum_analyze_scale_factor
);
ALTER TABLE accounts_session RESET (
    fillfactor, autovacuum_vacuum_scale_factor, autovacuum_analyze_scale_factor
);
"""


class Migration(migrations.Migration):
    """Adds indexes for pruning and lists, concurrently, so that tables in use do not wait."""

    atomic = False

    dependencies = [("accounts", "0013_one_time_passwords_validated")]

    operations = [
        AddIndexConcurrently(
            model_name="session",
            index=models.Index(fields=["started_at"], name="session_by_start"),
        ),
        AddIndexConcurrently(
            model_name="session",
            index=models.Index(
                condition=models.Q(("ended_at__isnull", False)),
                fields=["ended_at", "id"],
                name="session_by_end",
            ),
        ),
        AddIndexConcurrently(
            model_name="session",
            index=models.Index(
                condition=models.Q(("ended_by", ""), _negated=True),
                fields=["ended_by", "started_at"],
                name="session_by_why_it_ended",
            ),
        ),
        AddIndexConcurrently(
            model_name="session",
            index=models.Index(
                fields=["device_fp"],
                name="session_by_device",
                opclasses=("varchar_pattern_ops",),
            ),
        ),
        AddIndexConcurrently(
            model_name="refreshtoken",
            index=models.Index(fields=["issued_at"], name="token_by_issue"),
        ),
        AddIndexConcurrently(
            model_name="refreshtoken",
            index=models.Index(
                condition=models.Q(("replaced_at", None), ("revoked_at", None)),
                fields=["expires_at", "id"],
                name="token_last_by_expiry",
            ),
        ),
        AddIndexConcurrently(
            model_name="refreshtoken",
            index=models.Index(
                condition=models.Q(("revoked_at__isnull", False)),
                fields=["issued_at"],
                name="token_revoked_by_issue",
            ),
        ),
        migrations.RunSQL(TEND, UNTEND),
    ]
