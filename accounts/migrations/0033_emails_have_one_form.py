"""The form by which an email is compared, beside the email as it is stored."""

from django.db import migrations

import accounts.models.people

# A process of the release before, and SQL by hand, change an email and know of no form: the old one would let whoever
# has the old mailbox in. The worker fills it again.
EMPTY = """
CREATE FUNCTION accounts_form_is_of_the_email() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.email_form := NULL;
    RETURN NEW;
END $$;
CREATE TRIGGER form_is_of_the_email BEFORE UPDATE OF email ON accounts_user
    FOR EACH ROW WHEN (NEW.email <> OLD.email AND NEW.email_form IS NOT DISTINCT FROM OLD.email_form)
    EXECUTE FUNCTION accounts_form_is_of_the_email();
"""
KEEP = """
DROP TRIGGER form_is_of_the_email ON accounts_user;
DROP FUNCTION accounts_form_is_of_the_email();
"""


class Migration(migrations.Migration):
    dependencies = [("accounts", "0032_refusals_have_a_beginning")]

    operations = [
        migrations.AddField(
            model_name="user",
            name="email_form",
            field=accounts.models.people.EmailFormField(editable=False, null=True),
        ),
        migrations.RunSQL(EMPTY, KEEP),
    ]
