from django.db import migrations

ARGUMENTS = "'^spend_limit:', 'spend_limit:changed_by_hand', 'id', ''"
AUDIT = f"""
CREATE CONSTRAINT TRIGGER change_by_hand_is_audited AFTER UPDATE ON usage_spendlimit
    DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW WHEN (
        (OLD.name, OLD.daily, OLD.monthly, OLD.passes_on)
        IS DISTINCT FROM (NEW.name, NEW.daily, NEW.monthly, NEW.passes_on)
    ) EXECUTE FUNCTION audit_change_by_hand({ARGUMENTS});
CREATE CONSTRAINT TRIGGER row_by_hand_is_audited AFTER INSERT OR DELETE ON usage_spendlimit
    DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION audit_change_by_hand({ARGUMENTS});
"""
FORGET = """
DROP TRIGGER row_by_hand_is_audited ON usage_spendlimit;
DROP TRIGGER change_by_hand_is_audited ON usage_spendlimit;
"""


class Migration(migrations.Migration):
    """Spending limits that are changed by SQL leave an audit event, as budgets do. Sums are the worker's."""

    dependencies = [
        ("usage", "0040_spend_limits"),
        ("licensing", "0015_changes_by_hand_have_no_switch"),
    ]

    operations = [migrations.RunSQL(AUDIT, FORGET)]
