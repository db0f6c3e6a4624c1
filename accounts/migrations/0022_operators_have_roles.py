"""Roles are groups without permissions; superusers become owners and remain superusers.

Groups that an operator made by hand under one of these names keep their members and permissions under another name,
so that nobody's rights change by the upgrade.
"""

from django.db import migrations

MAKE = """
UPDATE auth_group SET name = name || ' (before roles)'
    WHERE name IN ('support', 'licensing', 'release', 'auditor', 'owner');
INSERT INTO auth_group (name) VALUES ('support'), ('licensing'), ('release'), ('auditor'), ('owner');
INSERT INTO accounts_user_groups (user_id, group_id)
    SELECT operator.id, role.id FROM accounts_user operator, auth_group role
    WHERE operator.is_staff AND operator.is_superuser AND role.name = 'owner';
"""
UNMAKE = """
DELETE FROM accounts_user_groups USING auth_group role
    WHERE group_id = role.id AND role.name IN ('support', 'licensing', 'release', 'auditor', 'owner');
DELETE FROM auth_group WHERE name IN ('support', 'licensing', 'release', 'auditor', 'owner');
UPDATE auth_group SET name = replace(name, ' (before roles)', '') WHERE name LIKE '% (before roles)';
"""


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0021_audit_is_pruned_by_a_function"),
        ("auth", "0012_alter_user_first_name_max_length"),
    ]

    operations = [
        migrations.CreateModel(
            name="Operator",
            fields=[],
            options={"ordering": ("email",), "proxy": True, "indexes": [], "constraints": []},
            bases=("accounts.user",),
        ),
        migrations.RunSQL(MAKE, UNMAKE),
    ]
