"""Budgets and overrides that are changed by SQL leave an audit event, as licences and plans do.

Of a budget its number alone counts: what was spent of it and when operators were told is the worker's.
"""

from django.db import migrations

TABLES = {
    "usage_budget": (
        "'^client:(budget_set|deleted)$', 'client:budget_changed_by_hand', 'client_id', 'accounts_client'",
        "OLD.monthly IS DISTINCT FROM NEW.monthly OR OLD.client_id IS DISTINCT FROM NEW.client_id",
    ),
    "usage_override": (
        "'^(override:|user:(deleted|erased)$)', 'override:changed_by_hand', 'user_id', 'accounts_user'",
        "OLD.* IS DISTINCT FROM NEW.*",
    ),
}
AUDIT = "".join(
    f"""
CREATE CONSTRAINT TRIGGER change_by_hand_is_audited AFTER UPDATE ON {table}
    DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW WHEN ({changed}) EXECUTE FUNCTION audit_change_by_hand({arguments});
CREATE CONSTRAINT TRIGGER row_by_hand_is_audited AFTER INSERT OR DELETE ON {table}
    DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION audit_change_by_hand({arguments});
"""
    for table, (arguments, changed) in TABLES.items()
)
FORGET = "".join(
    f"""
DROP TRIGGER row_by_hand_is_audited ON {table};
DROP TRIGGER change_by_hand_is_audited ON {table};
"""
    for table in TABLES
)


class Migration(migrations.Migration):
    dependencies = [
        ("usage", "0030_answers_that_were_not_read"),
        ("licensing", "0015_changes_by_hand_have_no_switch"),
    ]

    operations = [migrations.RunSQL(AUDIT, FORGET)]
