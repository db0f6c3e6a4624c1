"""Looks for the transaction's own event where a licence or a plan is changed, and no longer for a note of it.

The note was a setting of the session, which whoever changes a row by hand could write too. A row of the audit log is
of this transaction, or of a savepoint in it, if it is seen and its writer has not ended. Events of processes of before
count like those of now: each rule writes its event in the transaction of its change.
"""

from importlib import import_module

from django.db import migrations

_before = import_module("licensing.migrations.0014_changes_by_hand_are_audited")

# A trigger says which events of which target tell of the change, the action of the event where none does, the column
# that names the target, and the table of the target's name; "" is the row itself.
AUDIT = """
CREATE FUNCTION audited_in_this_transaction(about text, actions text) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    -- Savepoints have later numbers than their transaction; those of rows go round after 32 bits.
    ours CONSTANT bigint := pg_current_xact_id()::text::bigint;
    round CONSTANT bigint := 4294967296;
BEGIN
    RETURN EXISTS (
        SELECT FROM (
            SELECT (event.xmin::text::bigint - ours % round + round) % round AS later
            FROM accounts_auditevent event
            WHERE event.target_id = about AND event.action ~ actions AND event.action NOT LIKE '%by_hand'
        ) AS written
        WHERE CASE WHEN later < 16777216 THEN pg_xact_status((ours + later)::text::xid8) = 'in progress' END
    );
END $$;

DO $do$ BEGIN EXECUTE format($create$
ALTER FUNCTION audited_in_this_transaction(text, text) SET search_path = pg_catalog, %1$I, pg_temp;

-- With the rights of the tables' owner: whoever may change a row need not be able to write events.
CREATE FUNCTION audit_change_by_hand() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, %1$I, pg_temp
AS $$
DECLARE
    was jsonb := CASE WHEN TG_OP <> 'INSERT' THEN to_jsonb(OLD) END;
    became jsonb := CASE WHEN TG_OP <> 'DELETE' THEN to_jsonb(NEW) END;
    held CONSTANT jsonb := coalesce(became, was);
    about CONSTANT text := held ->> TG_ARGV[2];
    called text := held ->> 'name';
BEGIN
    IF audited_in_this_transaction(about, TG_ARGV[0]) THEN
        RETURN NULL;
    END IF;
    IF TG_ARGV[3] = 'accounts_client' THEN
        SELECT name INTO called FROM accounts_client WHERE id = about::uuid;
    ELSIF TG_ARGV[3] = 'accounts_user' THEN
        SELECT email INTO called FROM accounts_user WHERE id = about::uuid;
    END IF;
    -- Of what is gone with its client or person nothing is told.
    IF called IS NULL THEN
        RETURN NULL;
    END IF;
    IF TG_OP = 'UPDATE' THEN
        SELECT jsonb_object_agg(key, before.value), jsonb_object_agg(key, after.value) INTO was, became
        FROM jsonb_each(was) AS before JOIN jsonb_each(became) AS after USING (key)
        WHERE before.value <> after.value;
    END IF;
    INSERT INTO accounts_auditevent (
        at, action, actor, target, target_id, address, request_id, reason, before, after
    ) VALUES (
        now(), TG_ARGV[1], 'database role ' || session_user, called, about, inet_client_addr(), '',
        coalesce(held ->> 'operator_reason', held ->> 'reason', ''), was, became
    );
    RETURN NULL;
END $$;
$create$, current_schema()); END $do$;
REVOKE ALL ON FUNCTION audited_in_this_transaction(text, text), audit_change_by_hand() FROM PUBLIC;

DROP TRIGGER change_by_hand_is_audited ON licensing_licence;
DROP FUNCTION licensing_audit_by_hand();
CREATE CONSTRAINT TRIGGER change_by_hand_is_audited AFTER UPDATE ON licensing_licence
    DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW WHEN (OLD.* IS DISTINCT FROM NEW.*)
    EXECUTE FUNCTION audit_change_by_hand('^licence:', 'licence:changed_by_hand', 'client_id', 'accounts_client');
-- The version of the catalogue is no decision: a trigger writes it with each change of a model, a route or a provider.
CREATE CONSTRAINT TRIGGER change_by_hand_is_audited AFTER UPDATE ON licensing_plan
    DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW WHEN (to_jsonb(OLD) - 'catalogue_version' IS DISTINCT FROM to_jsonb(NEW) - 'catalogue_version')
    EXECUTE FUNCTION audit_change_by_hand('^plan:', 'plan:changed_by_hand', 'id', '');
-- A plan that is added gives nobody anything until a licence is changed.
CREATE CONSTRAINT TRIGGER row_by_hand_is_audited AFTER DELETE ON licensing_plan
    DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION audit_change_by_hand('^plan:', 'plan:changed_by_hand', 'id', '');
DROP TRIGGER licence_event_is_noted ON accounts_auditevent;
DROP FUNCTION licensing_note_event();
"""
FORGET = (
    """
DROP TRIGGER row_by_hand_is_audited ON licensing_plan;
DROP TRIGGER change_by_hand_is_audited ON licensing_plan;
DROP TRIGGER change_by_hand_is_audited ON licensing_licence;
DROP FUNCTION audit_change_by_hand();
DROP FUNCTION audited_in_this_transaction(text, text);
"""
    + _before.AUDIT
)


class Migration(migrations.Migration):
    dependencies = [("licensing", "0014_changes_by_hand_are_audited")]

    operations = [migrations.RunSQL(AUDIT, FORGET)]
