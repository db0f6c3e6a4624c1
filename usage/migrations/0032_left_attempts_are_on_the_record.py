"""Keeps an abandoned attempt that a process of release 1f2697d writes where processes of now read it: on its record.

The table stays, and with it this trigger, until no process of that release can be there.
"""

from django.db import migrations

KEEP = """
CREATE FUNCTION usage_left_attempt_of_the_release_before() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    form CONSTANT text := 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"';
BEGIN
    UPDATE usage_usagerecord SET abandoned = COALESCE(abandoned, '[]') || jsonb_build_object(
        'provider', NEW.provider, 'prices', NULL, 'input', NEW.input_tokens, 'output', NEW.output_tokens,
        'cost', NEW.cost, 'is_reported', false, 'asked_at', to_char(NEW.asked_at AT TIME ZONE 'UTC', form),
        'abandoned_at', to_char(NEW.left_at AT TIME ZONE 'UTC', form)
    ) WHERE id = NEW.record_id;
    RETURN NULL;
END $$;
CREATE TRIGGER attempt_is_on_its_record BEFORE INSERT ON usage_leftattempt
    FOR EACH ROW EXECUTE FUNCTION usage_left_attempt_of_the_release_before();
"""
LEAVE = """
DROP TRIGGER attempt_is_on_its_record ON usage_leftattempt;
DROP FUNCTION usage_left_attempt_of_the_release_before();
"""


class Migration(migrations.Migration):
    dependencies = [("usage", "0031_changes_by_hand_are_audited")]

    operations = [migrations.RunSQL(KEEP, LEAVE)]
