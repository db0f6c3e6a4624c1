from django.db import migrations

# Not the sums, which the worker counts every minute: what is reached, and what an operator lets pass.
NOTE = """
CREATE TRIGGER catalogue_changes AFTER UPDATE ON usage_spendlimit
FOR EACH ROW WHEN (
    (OLD.name, OLD.day_reached_at, OLD.month_reached_at, OLD.passes_on)
    IS DISTINCT FROM (NEW.name, NEW.day_reached_at, NEW.month_reached_at, NEW.passes_on)
) EXECUTE FUNCTION llmproxy_note_change();
CREATE TRIGGER catalogue_has_rows AFTER INSERT OR DELETE OR TRUNCATE ON usage_spendlimit
FOR EACH STATEMENT EXECUTE FUNCTION llmproxy_note_change();
"""
FORGET = """
DROP TRIGGER catalogue_has_rows ON usage_spendlimit;
DROP TRIGGER catalogue_changes ON usage_spendlimit;
"""


class Migration(migrations.Migration):
    """A spending limit that is reached changes the version of the catalogue, by which processes read it again."""

    dependencies = [
        ("llmproxy", "0018_dialects_by_name"),
        ("usage", "0041_spend_limits_by_hand_are_audited"),
    ]

    operations = [migrations.RunSQL(NOTE, FORGET)]
