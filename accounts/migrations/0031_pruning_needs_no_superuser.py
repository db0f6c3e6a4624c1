"""Replaces the function that prunes the audit log, where a superuser made it with ``SET`` at the function.

Only a superuser may make or restore such a function. Whoever may execute it still may, and both bodies do the same, so
nothing has to be undone.
"""

from django.db import migrations

REPLACE = """
DO $do$ BEGIN EXECUTE format($create$
CREATE OR REPLACE FUNCTION accounts_prune_audit(starting timestamptz, ending timestamptz, most integer)
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
"""


class Migration(migrations.Migration):
    dependencies = [("accounts", "0030_people_are_called_people")]

    operations = [migrations.RunSQL(REPLACE, migrations.RunSQL.noop)]
