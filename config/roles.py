"""The roles' rights: the pages of the console that each may look at, and the actions that it may do.

An owner may do everything, and what is missing here is an owner's alone. ``docs/roles.csv`` is made from it;
``tests/console/test_roles.py`` tries every page and action as every role and compares the two.

Rights are the code's and groups hold nothing but their members, so that no row widens a role and an upgrade brings a
new page or action with its roles. Operators from before roles keep the permissions that their rows give them.
"""

from collections.abc import Mapping
from typing import Any, Final

from django.contrib.auth.backends import BaseBackend

from accounts.models import Role

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
    "usage.runningcall": "support licensing",
    "usage.stop": "support licensing",
    "usage.usagerecord": "support licensing",
}

# Actions by model and name, which are also the names of their routes.
ACTIONS: Final[Mapping[str, str]] = {
    "accounts.client_add": "licensing",
    "accounts.client_alert_email": "licensing",
    "accounts.client_budget": "licensing",
    "accounts.client_import": "licensing",
    "accounts.client_invite": "support licensing",
    "accounts.client_name": "licensing",
    "accounts.client_remove": "licensing",
    "accounts.connection_disconnect": "support",
    "accounts.connectionrevocation_dismiss": "",
    "accounts.connectionrevocation_retry": "support",
    "accounts.session_end": "support",
    "accounts.user_add": "licensing",
    "accounts.user_disable": "support",
    "accounts.user_dismiss": "",
    # Whoever sets a person's email or one-time password can enter as that person.
    "accounts.user_email": "",
    "accounts.user_enable": "support",
    "accounts.user_erase": "",
    "accounts.user_invite": "support licensing",
    "accounts.user_move": "licensing",
    "accounts.user_one_time": "",
    "accounts.user_operator": "",
    "accounts.user_remove": "",
    "accounts.user_reset": "support",
    "accounts.user_reset_factor": "",
    "accounts.user_restart_calls": "support",
    "accounts.user_revoke": "support",
    "accounts.user_roles": "",
    "accounts.user_set_up_code": "",
    "accounts.user_stop_calls": "support",
    "licensing.brake_confirm": "licensing",
    "licensing.licence_customer": "licensing",
    "licensing.licence_status": "licensing",
    "licensing.licence_terms": "licensing",
    "licensing.plan_add": "licensing",
    "licensing.plan_terms": "licensing",
    "llmproxy.languagemodel_add": "licensing",
    "llmproxy.languagemodel_offer": "licensing",
    "llmproxy.personalkey_end": "support",
    # Whoever gives a provider its address is sent everybody's prompts.
    "llmproxy.provider_add": "",
    "llmproxy.provider_off": "licensing",
    "llmproxy.provider_on": "licensing",
    "llmproxy.provider_terms": "",
    "llmproxy.route_add": "licensing",
    "llmproxy.route_factor": "licensing",
    "llmproxy.route_learn": "licensing",
    "llmproxy.route_prices": "licensing",
    "llmproxy.route_published_prices": "licensing",
    "llmproxy.route_remove": "licensing",
    "llmproxy.route_try": "licensing",
    "llmproxy.route_way": "licensing",
    "procrastinate.procrastinatejob_discard": "",
    "procrastinate.procrastinatejob_retry": "support release",
    "procrastinate.procrastinatejob_retry_alike": "support release",
    "releases.apppin_unpin": "release",
    "releases.appversion_withdraw": "release",
    "releases.microapp_move": "release",
    "releases.microapp_pin_client": "release",
    "releases.microapp_pin_plan": "release",
    "releases.microapp_promote": "release",
    "releases.shellchannel_halt": "release",
    "releases.shellchannel_purge": "release",
    "releases.shellchannel_resume": "release",
    "releases.shellchannel_roll_back": "release",
    "telemetry.event_export": "auditor release",
    "usage.override_add": "support licensing",
    "usage.override_end": "support licensing",
    "usage.runningcall_end": "support",
    "usage.usagerecord_export": "auditor licensing",
}


def _rights(role: str) -> frozenset[str]:
    views = {
        model.replace(".", ".view_")
        for model, roles in VIEWS.items()
        if role in {Role.AUDITOR, Role.OWNER, *roles.split()}
    }
    return frozenset(
        views | {act for act, roles in ACTIONS.items() if role in {Role.OWNER, *roles.split()}}
    )


RIGHTS: Final[Mapping[str, frozenset[str]]] = {role: _rights(role) for role in Role.values}


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
