"""Pruning the audit log is a function of the table's owner, so that the service's role needs no right to delete."""

from django.db import migrations

# Its search path is fixed, so that no other schema can put a table of its own in place of this one. Events of the
# last day stay, whatever it is asked for. The role that may execute it is granted by manage.py split_database_roles.
# The setting is not given by SET at the function: only a superuser may do that. An error undoes it, as it undoes all else
# of its transaction or savepoint.
PRUNE = """
DO $do$ BEGIN EXECUTE format($create$
CREATE FUNCTION accounts_prune_audit(starting timestamptz, ending timestamptz, most integer)
    RETURNS TABLE (removed bigint, latest timestamptz)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, %I, pg_temp
AS $$
DECLARE before text := coalesce(current_setting('accounts.pruning_audit', true), '');
BEGIN
    PERFORM set_config('accounts.pruning_audit', 'on', true);
    WITH oldest AS (
        SELECT id, at FROM accounts_auditevent
        WHERE at >= starting AND at < LEAST(ending, now() - interval '1 day')
        ORDER BY at LIMIT most FOR UPDATE SKIP LOCKED
    ), deleted AS (
        DELETE FROM accounts_auditevent WHERE id = ANY (ARRAY(SELECT id FROM oldest)) RETURNING 1
    )
    SELECT (SELECT count(*) FROM deleted), (SELECT max(at) FROM oldest) INTO removed, latest;
    PERFORM set_config('accounts.pruning_audit', before, true);
    RETURN NEXT;
END $$
$create$, current_schema()); END $do$;
REVOKE ALL ON FUNCTION accounts_prune_audit(timestamptz, timestamptz, integer) FROM PUBLIC;
"""
UNPRUNE = "DROP FUNCTION accounts_prune_audit(timestamptz, timestamptz, integer)"
# Where roles were split before this table was made, their default privileges grant all of it; and where an operator
# has split them, the service's role may delete, and goes on pruning by the function.
APPEND_ONLY = """
DO $$ DECLARE other record; BEGIN
    FOR other IN
        SELECT acl.grantee::regrole::text AS name, bool_or(acl.privilege_type = 'DELETE') AS prunes
        FROM pg_class, aclexplode(relacl) AS acl
        WHERE pg_class.oid = 'accounts_auditevent'::regclass AND acl.grantee NOT IN (relowner, 0)
        GROUP BY acl.grantee
    LOOP
        EXECUTE format('REVOKE UPDATE, DELETE, TRUNCATE ON accounts_auditevent FROM %s', other.name);
        IF other.prunes THEN
            EXECUTE format(
                'GRANT EXECUTE ON FUNCTION accounts_prune_audit(timestamptz, timestamptz, integer) TO %s', other.name
            );
        END IF;
    END LOOP;
END $$
"""


class Migration(migrations.Migration):
    dependencies = [("accounts", "0020_clients_name_an_alert_email")]

    operations = [
        migrations.RunSQL(PRUNE, UNPRUNE),
        migrations.RunSQL(APPEND_ONLY, migrations.RunSQL.noop),
    ]
