from django.db import migrations

TABLES = (
    "llmproxy_languagemodel",
    "llmproxy_languagemodel_plans",
    "llmproxy_provider",
    "llmproxy_route",
)
MAKE = """
CREATE FUNCTION llmproxy_note_change() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    version uuid := gen_random_uuid();
BEGIN
    -- In one order, so that two changes at once never wait for each other.
    PERFORM FROM licensing_plan ORDER BY id FOR NO KEY UPDATE;
    UPDATE licensing_plan SET catalogue_version = version;
    RETURN NULL;
END $$
"""
NOTE = """
CREATE TRIGGER catalogue_changes AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON {table}
FOR EACH STATEMENT EXECUTE FUNCTION llmproxy_note_change()
"""


class Migration(migrations.Migration):
    dependencies = [
        ("llmproxy", "0001_squashed_0009_price_of_cache_writes"),
        ("licensing", "0009_plans_know_a_version_of_the_catalogue"),
    ]

    operations = [
        migrations.RunSQL(MAKE, "DROP FUNCTION llmproxy_note_change()"),
        *(
            migrations.RunSQL(
                NOTE.format(table=table), f"DROP TRIGGER catalogue_changes ON {table}"
            )
            for table in TABLES
        ),
    ]
