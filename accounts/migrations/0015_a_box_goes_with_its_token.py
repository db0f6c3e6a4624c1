"""Whoever revokes a token, and however, empties its retry box: an operator's SQL need not know that there is one."""

from django.db import migrations

EMPTY = """
CREATE FUNCTION accounts_box_ends_with_its_token() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.retry_box := NULL;
    RETURN NEW;
END $$;
CREATE TRIGGER box_ends_with_its_token BEFORE UPDATE OF revoked_at ON accounts_refreshtoken
    FOR EACH ROW WHEN (NEW.revoked_at IS NOT NULL AND NEW.retry_box IS NOT NULL)
    EXECUTE FUNCTION accounts_box_ends_with_its_token();
"""
KEEP = """
DROP TRIGGER box_ends_with_its_token ON accounts_refreshtoken;
DROP FUNCTION accounts_box_ends_with_its_token();
"""


class Migration(migrations.Migration):
    dependencies = [("accounts", "0014_large_tables")]

    operations = [migrations.RunSQL(EMPTY, KEEP)]
