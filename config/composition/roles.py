"""The roles' rights: the pages of the console that each may look at, the actions that it may do, and which are grave.

An owner may do everything, and what is missing here is an owner's alone. ``docs/roles.csv`` is made from it;
``tests/console/test_roles.py`` tries every page and action as every role and compares the two.

Rights are the code's and groups hold nothing but their members, so that no row widens a role and an upgrade brings a
new page or action with its roles. Operators from before roles keep the permissions that their rows give them.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from django.contrib.auth.backends import BaseBackend

from accounts.models import Role, User

# Lists and rows by model. Auditors look at all of them.
VIEWS: Final[Mapping[str, str]] = {
    "accounts.auditevent": "support licensing",
    "accounts.client": "support licensing",
    "accounts.connection": "support",
    "accounts.connectionrevocation": "support",
    "accounts.operator": "",
    "accounts.refreshtoken": "support",
    "accounts.session": "support",
    "accounts.signingkey": "",
    "accounts.user": "support licensing",
    "licensing.brake": "licensing",
    "licensing.licence": "support licensing",
    "licensing.plan": "support licensing",
    "llmproxy.languagemodel": "support licensing",
    "llmproxy.personalkey": "support licensing",
    "llmproxy.provider": "licensing",
    "llmproxy.route": "licensing",
    "procrastinate.procrastinatejob": "support release",
    "releases.appchannel": "release",
    "releases.apppin": "support release",
    "releases.appversion": "release",
    "releases.microapp": "support release",
    "releases.shellchannel": "support release",
    "releases.shellrelease": "support release",
    "telemetry.event": "support release",
    "usage.alert": "support licensing",
    "usage.budget": "support licensing",
    "usage.monthlyusage": "support licensing",
    "usage.override": "support licensing",
    "usage.refusal": "support licensing",
    "usage.runningcall": "support licensing",
    "usage.stop": "support licensing",
    "usage.usagerecord": "support licensing",
}

# A grave action asks for the second factor again where the latest proof is older than ten minutes: it hands out power,
# cannot be undone, decides which code shells run, or sends prompts elsewhere.
PLAIN, GRAVE = "", "grave"
# Grave where it is done to an operator: it locks one out, or lets one in.
OPERATORS = "grave for operators"

# Actions by model and name, which are also the names of their routes: the roles that may, and the proof that it wants.
ACTIONS: Final[Mapping[str, tuple[str, str]]] = {
    "accounts.auditevent_export": ("auditor", PLAIN),
    "accounts.client_add": ("licensing", PLAIN),
    "accounts.client_alert_email": ("licensing", PLAIN),
    "accounts.client_budget": ("licensing", PLAIN),
    "accounts.client_import": ("licensing", PLAIN),
    "accounts.client_invite": ("support licensing", PLAIN),
    "accounts.client_name": ("licensing", PLAIN),
    "accounts.client_remove": ("licensing", GRAVE),
    "accounts.connection_disconnect": ("support", PLAIN),
    "accounts.connectionrevocation_dismiss": ("", GRAVE),
    "accounts.connectionrevocation_retry": ("support", PLAIN),
    "accounts.operator_add": ("", GRAVE),
    "accounts.session_end": ("support", PLAIN),
    "accounts.user_add": ("licensing", PLAIN),
    "accounts.user_disable": ("support", OPERATORS),
    "accounts.user_dismiss": ("", GRAVE),
    # Whoever sets a person's email or one-time password can enter as that person.
    "accounts.user_email": ("", GRAVE),
    "accounts.user_enable": ("support", OPERATORS),
    "accounts.user_erase": ("", GRAVE),
    "accounts.user_invite": ("support licensing", PLAIN),
    "accounts.user_move": ("licensing", PLAIN),
    "accounts.user_one_time": ("", GRAVE),
    "accounts.user_operator": ("", GRAVE),
    "accounts.user_remove": ("", GRAVE),
    "accounts.user_reset": ("support", PLAIN),
    "accounts.user_reset_factor": ("", GRAVE),
    "accounts.user_restart_calls": ("support", PLAIN),
    "accounts.user_revoke": ("support", GRAVE),
    "accounts.user_roles": ("", GRAVE),
    "accounts.user_set_up_code": ("", GRAVE),
    "accounts.user_stop_calls": ("support", PLAIN),
    "licensing.brake_confirm": ("licensing", PLAIN),
    "licensing.licence_customer": ("licensing", PLAIN),
    "licensing.licence_status": ("licensing", PLAIN),
    "licensing.licence_terms": ("licensing", PLAIN),
    "licensing.plan_add": ("licensing", PLAIN),
    "licensing.plan_terms": ("licensing", PLAIN),
    "llmproxy.languagemodel_add": ("licensing", PLAIN),
    "llmproxy.languagemodel_off": ("licensing", PLAIN),
    "llmproxy.languagemodel_offer": ("licensing", PLAIN),
    "llmproxy.languagemodel_on": ("licensing", PLAIN),
    "llmproxy.personalkey_end": ("support", PLAIN),
    # Whoever gives a provider its address is sent everybody's prompts.
    "llmproxy.provider_add": ("", GRAVE),
    "llmproxy.provider_off": ("licensing", PLAIN),
    "llmproxy.provider_on": ("licensing", PLAIN),
    "llmproxy.provider_terms": ("", GRAVE),
    "llmproxy.route_add": ("licensing", PLAIN),
    "llmproxy.route_factor": ("licensing", PLAIN),
    "llmproxy.route_learn": ("licensing", PLAIN),
    "llmproxy.route_prices": ("licensing", PLAIN),
    "llmproxy.route_published_prices": ("licensing", PLAIN),
    "llmproxy.route_remove": ("licensing", PLAIN),
    "llmproxy.route_try": ("licensing", PLAIN),
    "llmproxy.route_way": ("licensing", PLAIN),
    "procrastinate.procrastinatejob_discard": ("", GRAVE),
    "procrastinate.procrastinatejob_retry": ("support release", PLAIN),
    "procrastinate.procrastinatejob_retry_alike": ("support release", PLAIN),
    "releases.apppin_unpin": ("release", GRAVE),
    "releases.appversion_withdraw": ("release", GRAVE),
    "releases.microapp_move": ("release", GRAVE),
    "releases.microapp_pin_client": ("release", GRAVE),
    "releases.microapp_pin_plan": ("release", GRAVE),
    "releases.microapp_promote": ("release", GRAVE),
    "releases.shellchannel_end_share": ("release", PLAIN),
    "releases.shellchannel_halt": ("release", PLAIN),
    "releases.shellchannel_offer": ("release", GRAVE),
    "releases.shellchannel_purge": ("release", PLAIN),
    "releases.shellchannel_raise_share": ("release", GRAVE),
    "releases.shellchannel_resume": ("release", GRAVE),
    "releases.shellchannel_roll_back": ("release", GRAVE),
    "telemetry.event_export": ("auditor release", PLAIN),
    "usage.budget_add": ("licensing", PLAIN),
    "usage.override_add": ("support licensing", PLAIN),
    "usage.override_end": ("support licensing", PLAIN),
    "usage.runningcall_end": ("support", PLAIN),
    "usage.usagerecord_export": ("auditor licensing", PLAIN),
    "usage.usagerecord_lower": ("licensing", GRAVE),
}


def _rights(role: str) -> frozenset[str]:
    views = {
        model.replace(".", ".view_")
        for model, roles in VIEWS.items()
        if role in {Role.AUDITOR, Role.OWNER, *roles.split()}
    }
    return frozenset(
        views | {act for act, (roles, _) in ACTIONS.items() if role in {Role.OWNER, *roles.split()}}
    )


RIGHTS: Final[Mapping[str, frozenset[str]]] = {role: _rights(role) for role in Role.values}


def wants_proof(right: str, *, people: Iterable[User | None]) -> bool:
    """Whether an action on these people wants a fresh proof; one that the table does not name does."""
    _, proof = ACTIONS.get(right, ("", GRAVE))
    is_on_operator = any(each is not None and each.is_staff for each in people)
    return proof == GRAVE or (proof == OPERATORS and is_on_operator)


class RoleBackend(BaseBackend):
    """Answers Django's questions for permissions by an operator's roles; it signs nobody in."""

    def get_group_permissions(self, user_obj: Any, obj: Any = None) -> set[str]:
        # A right is for every row, and an anonymous user has neither rows nor roles.
        if obj is not None or not user_obj.is_active:
            return set()
        return set().union(*(RIGHTS[role] for role in user_obj.roles))

    def has_module_perms(self, user_obj: Any, app_label: str) -> bool:
        rights = self.get_group_permissions(user_obj)
        return any(right.startswith(f"{app_label}.") for right in rights)
