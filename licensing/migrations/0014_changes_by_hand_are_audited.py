"""A licence that is changed by SQL leaves an audit event of its own, whoever has changed it and with what program.

A rule writes its event in the transaction of its change, in this version and in all before it, so nothing that they do
is told twice. The trigger looks at the end of a transaction, when its other events are written; a trigger on these notes
whose licences they are about, for that transaction alone.
"""

from django.db import migrations

# With the rights of the tables' owner: whoever may change a licence need not be able to write events. The tables are locked
# in the order in which rules write them.
AUDIT = """
DO $do$ BEGIN EXECUTE format($create$
CREATE FUNCTION licensing_audit_by_hand() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, %I, pg_temp
AS $$
DECLARE earlier jsonb; later jsonb;
BEGIN
    IF position(NEW.client_id::text IN coalesce(current_setting('licensing.audited', true), '')) > 0 THEN
        RETURN NULL;
    END IF;
    SELECT jsonb_object_agg(key, was.value), jsonb_object_agg(key, became.value) INTO earlier, later
    FROM jsonb_each(to_jsonb(OLD)) AS was JOIN jsonb_each(to_jsonb(NEW)) AS became USING (key)
    WHERE was.value <> became.value;
    INSERT INTO accounts_auditevent (
        at, action, actor, target, target_id, address, request_id, reason, before, after
    ) SELECT
        now(), 'licence:changed_by_hand', 'database role ' || session_user, client.name, NEW.client_id::text,
        inet_client_addr(), '', NEW.operator_reason, earlier, later
    FROM accounts_client client WHERE client.id = NEW.client_id;
    RETURN NULL;
END $$
$create$, current_schema()); END $do$;
REVOKE ALL ON FUNCTION licensing_audit_by_hand() FROM PUBLIC;
CREATE CONSTRAINT TRIGGER change_by_hand_is_audited AFTER UPDATE ON licensing_licence
    DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW WHEN (OLD.* IS DISTINCT FROM NEW.*) EXECUTE FUNCTION licensing_audit_by_hand();

CREATE FUNCTION licensing_note_event() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config(
        'licensing.audited', concat_ws(' ', current_setting('licensing.audited', true), NEW.target_id), true
    );
    RETURN NULL;
END $$;
CREATE TRIGGER licence_event_is_noted AFTER INSERT ON accounts_auditevent
    FOR EACH ROW WHEN (NEW.action LIKE 'licence:%' AND NEW.action <> 'licence:changed_by_hand')
    EXECUTE FUNCTION licensing_note_event();
"""
FORGET = """
DROP TRIGGER change_by_hand_is_audited ON licensing_licence;
DROP FUNCTION licensing_audit_by_hand();
DROP TRIGGER licence_event_is_noted ON accounts_auditevent;
DROP FUNCTION licensing_note_event();
"""


class Migration(migrations.Migration):
    dependencies = [
        ("licensing", "0013_brakes_are_held_suspensions"),
        ("accounts", "0030_people_are_called_people"),
    ]

    operations = [migrations.RunSQL(AUDIT, FORGET)]
