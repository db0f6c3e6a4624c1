"""A row trigger does not see TRUNCATE, which would empty the audit log at once; nobody may, pruning included."""

from django.db import migrations

GUARD = """
CREATE FUNCTION accounts_audit_is_not_emptied() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'audit events are append-only' USING ERRCODE = 'integrity_constraint_violation';
END $$;
CREATE TRIGGER audit_is_not_emptied BEFORE TRUNCATE ON accounts_auditevent
    FOR EACH STATEMENT EXECUTE FUNCTION accounts_audit_is_not_emptied();
"""
UNGUARD = """
DROP TRIGGER audit_is_not_emptied ON accounts_auditevent;
DROP FUNCTION accounts_audit_is_not_emptied();
"""


class Migration(migrations.Migration):
    dependencies = [("accounts", "0004_password_links")]

    operations = [migrations.RunSQL(GUARD, UNGUARD)]
