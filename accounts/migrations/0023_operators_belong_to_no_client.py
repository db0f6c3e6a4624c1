"""Nobody of a client becomes an operator, and no operator comes to a client; nobody does without a password.

A trigger and no constraint, because operators of earlier releases may belong to a client, and a constraint would
refuse every change of their rows. The erased have a constraint of their own. A new row may be without a password: ``createsuperuser`` mails a link afterwards.
"""

from django.db import migrations

GUARD = """
CREATE FUNCTION accounts_operator_is_nobodys() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND OLD.is_staff AND OLD.client_id IS NOT DISTINCT FROM NEW.client_id THEN
        RETURN NEW;
    END IF;
    IF NEW.client_id IS NOT NULL THEN
        RAISE EXCEPTION 'an operator belongs to no client'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'user_operator_has_no_client';
    END IF;
    IF TG_OP = 'UPDATE' AND NOT OLD.is_staff AND starts_with(NEW.password, '!') THEN
        RAISE EXCEPTION 'an operator has set a password'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'user_operator_has_a_password';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER operator_is_nobodys BEFORE INSERT OR UPDATE OF is_staff, client_id ON accounts_user
    FOR EACH ROW WHEN (NEW.is_staff AND NEW.erased_at IS NULL)
    EXECUTE FUNCTION accounts_operator_is_nobodys();
"""
UNGUARD = """
DROP TRIGGER operator_is_nobodys ON accounts_user;
DROP FUNCTION accounts_operator_is_nobodys();
"""


class Migration(migrations.Migration):
    dependencies = [("accounts", "0022_operators_have_roles")]

    operations = [migrations.RunSQL(GUARD, UNGUARD)]
