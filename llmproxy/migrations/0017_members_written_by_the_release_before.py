"""Copies members that a process of the release before writes to the column of now."""

from django.db import migrations

# It knows one column alone, so a change of that one without the other is its operator's, and so is a new provider
# that has everything there and nothing here.
FOLLOW = """
CREATE FUNCTION llmproxy_members_of_the_release_before() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.member_names := NEW.members;
    RETURN NEW;
END $$;
CREATE TRIGGER members_were_changed BEFORE UPDATE OF members ON llmproxy_provider
    FOR EACH ROW WHEN (NEW.members <> OLD.members AND NEW.member_names = OLD.member_names)
    EXECUTE FUNCTION llmproxy_members_of_the_release_before();
CREATE TRIGGER members_are_given BEFORE INSERT ON llmproxy_provider
    FOR EACH ROW WHEN (NEW.members = 'all' AND NEW.member_names = 'listed')
    EXECUTE FUNCTION llmproxy_members_of_the_release_before();
"""
LEAVE = """
DROP TRIGGER members_are_given ON llmproxy_provider;
DROP TRIGGER members_were_changed ON llmproxy_provider;
DROP FUNCTION llmproxy_members_of_the_release_before();
"""
# Said while there was no trigger yet.
CATCH_UP = "UPDATE llmproxy_provider SET member_names = 'all' WHERE members = 'all' AND member_names = 'listed'"


class Migration(migrations.Migration):
    dependencies = [("llmproxy", "0016_members_by_name")]

    operations = [
        migrations.RunSQL(FOLLOW, LEAVE),
        migrations.RunSQL(CATCH_UP, migrations.RunSQL.noop),
    ]
