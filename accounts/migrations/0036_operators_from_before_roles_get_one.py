"""Operators from before roles get the role that holds what their permissions allowed.

From this release on an operator's rights are those of their roles alone. An operator who could only look becomes an auditor.
Others get the smallest role that holds all that they had; where none does, the largest role that gives nothing that
they had not, or none. An owner is never made: superusers are owners already. An event of the audit log names each.

The permissions stay in their rows, because processes of the release before read them during the upgrade.
"""

from collections.abc import Iterator
from typing import Any

from django.db import migrations
from django.utils import timezone

# From the one with the fewest rights to the one with the most.
ROLES = ("release", "auditor", "support", "licensing")
# The roles that hold all that a permission allowed in the console, and those that hold a part of it; what neither names
# is an owner's alone. A permission that is not here allowed nothing.
ALLOWED: dict[str, tuple[str, str]] = {
    "accounts.add_client": ("licensing", ""),
    "accounts.add_operator": ("", ""),
    "accounts.add_user": ("licensing", "support"),
    "accounts.change_client": ("licensing", "support"),
    "accounts.change_connectionrevocation": ("support", ""),
    "accounts.change_session": ("support", ""),
    "accounts.change_user": ("", "support licensing"),
    "accounts.delete_client": ("licensing", ""),
    "accounts.delete_connection": ("support", ""),
    "accounts.delete_connectionrevocation": ("", ""),
    "accounts.delete_user": ("", ""),
    "accounts.view_auditevent": ("auditor", "support licensing"),
    "accounts.view_client": ("auditor support licensing", ""),
    "accounts.view_connection": ("auditor support", ""),
    "accounts.view_connectionrevocation": ("auditor support", ""),
    "accounts.view_operator": ("auditor", ""),
    "accounts.view_refreshtoken": ("auditor support", ""),
    "accounts.view_session": ("auditor support", ""),
    "accounts.view_signingkey": ("auditor", ""),
    "accounts.view_user": ("auditor support licensing", ""),
    "licensing.add_plan": ("licensing", ""),
    "licensing.change_brake": ("licensing", ""),
    "licensing.change_licence": ("licensing", ""),
    "licensing.change_plan": ("licensing", ""),
    "licensing.view_brake": ("auditor licensing", ""),
    "licensing.view_licence": ("auditor support licensing", ""),
    "licensing.view_plan": ("auditor support licensing", ""),
    "llmproxy.add_languagemodel": ("licensing", ""),
    "llmproxy.add_provider": ("", ""),
    "llmproxy.add_route": ("licensing", ""),
    "llmproxy.change_languagemodel": ("licensing", ""),
    "llmproxy.change_personalkey": ("support", ""),
    "llmproxy.change_provider": ("", "licensing"),
    "llmproxy.change_route": ("licensing", ""),
    "llmproxy.delete_route": ("licensing", ""),
    "llmproxy.view_languagemodel": ("auditor support licensing", ""),
    "llmproxy.view_personalkey": ("auditor support licensing", ""),
    "llmproxy.view_provider": ("auditor licensing", ""),
    "llmproxy.view_route": ("auditor licensing", ""),
    "procrastinate.change_procrastinatejob": ("", "release support"),
    "procrastinate.view_procrastinatejob": ("release auditor support", ""),
    "releases.change_appversion": ("release", ""),
    "releases.change_microapp": ("release", ""),
    "releases.change_shellchannel": ("release", ""),
    "releases.delete_apppin": ("release", ""),
    "releases.view_appchannel": ("release auditor", ""),
    "releases.view_apppin": ("release auditor support", ""),
    "releases.view_appversion": ("release auditor", ""),
    "releases.view_microapp": ("release auditor support", ""),
    "releases.view_shellchannel": ("release auditor support", ""),
    "releases.view_shellrelease": ("release auditor support", ""),
    "telemetry.view_event": ("release auditor", "support"),
    "usage.add_budget": ("licensing", ""),
    "usage.add_override": ("support licensing", ""),
    "usage.change_budget": ("licensing", ""),
    "usage.change_override": ("support licensing", ""),
    "usage.change_runningcall": ("support", ""),
    "usage.change_usagerecord": ("licensing", ""),
    "usage.view_alert": ("auditor support licensing", ""),
    "usage.view_budget": ("auditor support licensing", ""),
    "usage.view_monthlyusage": ("auditor support licensing", ""),
    "usage.view_override": ("auditor support licensing", ""),
    "usage.view_refusal": ("auditor support licensing", ""),
    "usage.view_runningcall": ("auditor support licensing", ""),
    "usage.view_stop": ("auditor support licensing", ""),
    "usage.view_usagerecord": ("auditor licensing", "support"),
}
ALL_HELD = "The role holds all that the operator's permissions from before roles allowed."
PART_HELD = "No role but owner holds all that the operator's permissions from before roles allowed."
NOT_HELD = f"{PART_HELD} Choose a role."


def role_for(had: set[str]) -> tuple[str, str]:
    """Returns the role in place of these permissions ("" for none), and the reason."""
    if all(".view_" in each for each in had):
        return "auditor", ALL_HELD
    for role in ROLES:
        if all(role in ALLOWED[each][0].split() for each in had):
            return role, ALL_HELD
    for role in reversed(ROLES):
        if {name for name, held in ALLOWED.items() if role in " ".join(held).split()} <= had:
            return role, PART_HELD
    return "", NOT_HELD


def permissions_of(operator: Any, permissions: Any) -> Iterator[str]:
    """The operator's permissions that allowed something, of their own and of their groups."""
    rows = permissions.filter(user=operator) | permissions.filter(group__user=operator)
    for label, codename in rows.values_list("content_type__app_label", "codename"):
        # The permission to change rows showed them too.
        seen = codename.replace("change_", "view_", 1) if codename.startswith("change_") else ""
        yield from ({f"{label}.{codename}", f"{label}.{seen}"} & set(ALLOWED))


def give_roles(apps: Any, schema_editor: object) -> None:
    groups = apps.get_model("auth", "Group").objects
    permissions = apps.get_model("auth", "Permission").objects
    operators = apps.get_model("accounts", "User").objects.filter(is_staff=True, is_superuser=False)
    for operator in operators.order_by("email").select_for_update():
        had = set(permissions_of(operator, permissions))
        if not had or operator.groups.filter(name__in=(*ROLES, "owner")).exists():
            continue
        role, reason = role_for(had)
        roles = [role] if role else []
        for name in roles:
            operator.groups.add(groups.get_or_create(name=name)[0])
        apps.get_model("accounts", "AuditEvent").objects.create(
            at=timezone.now(),
            action="user:operator_set",
            actor="manage.py migrate",
            target=operator.email,
            target_id=str(operator.pk),
            reason=reason,
            before={"operator": True, "roles": [], "permissions": sorted(had)},
            after={"operator": True, "roles": roles},
        )


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0035_forms_to_be_filled_in"),
        ("auth", "0012_alter_user_first_name_max_length"),
    ]

    operations = [migrations.RunPython(give_roles, migrations.RunPython.noop)]
