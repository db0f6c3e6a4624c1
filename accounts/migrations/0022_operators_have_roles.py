"""Roles are groups without permissions; superusers become owners and remain superusers.

Groups that an operator made by hand under one of these names keep their members and permissions under another name,
so that nobody's rights change by the upgrade.
"""

from typing import Any

from django.db import migrations

ROLES = ("support", "licensing", "release", "auditor", "owner")
BY_HAND = "{} (before roles)"


def make_roles(apps: Any, schema_editor: Any) -> None:
    group, user = apps.get_model("auth", "Group"), apps.get_model("accounts", "User")
    for name in ROLES:
        group.objects.filter(name=name).update(name=BY_HAND.format(name))
    made = {each.name: each for each in group.objects.bulk_create(group(name=n) for n in ROLES)}
    member = user.groups.through
    owners = user.objects.filter(is_superuser=True, is_staff=True).values_list("pk", flat=True)
    member.objects.bulk_create(member(user_id=pk, group_id=made["owner"].pk) for pk in owners)


def unmake_roles(apps: Any, schema_editor: Any) -> None:
    group = apps.get_model("auth", "Group")
    group.objects.filter(name__in=ROLES).delete()
    for name in ROLES:
        group.objects.filter(name=BY_HAND.format(name)).update(name=name)


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
        migrations.RunPython(make_roles, unmake_roles),
    ]
