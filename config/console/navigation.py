"""The sidebar: the console's pages grouped by operators' work. Lists of one entry are the tabs of its page."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from django.apps import apps
from django.contrib.admin import AdminSite
from django.http import HttpRequest
from django.urls import NoReverseMatch, reverse

# Groups, their entries, and the pages of each: a model's list, or a named page and the right that opens it.
GROUPS: Mapping[str, Mapping[str, Mapping[str, str]]] = {
    "": {"Overview": {"Overview": "index"}},
    "Clients & people": {
        "Clients": {
            "Clients": "accounts.client",
            "Licences": "licensing.licence",
            "Plans": "licensing.plan",
            "Held suspensions": "licensing.brake",
        },
        "People": {"People": "accounts.user"},
        "Operators": {"Operators": "accounts.operator"},
    },
    "Usage": {
        "Calls": {
            "Calls": "usage.usagerecord",
            "Running": "usage.runningcall",
            "Refusals": "usage.refusal",
        },
        "Usage & money": {"Usage & money": "usage_and_money usage.view_monthlyusage"},
        "Limits & budgets": {
            "Budgets": "usage.budget",
            "Overrides": "usage.override",
            "Stops": "usage.stop",
            "Alerts": "usage.alert",
            "Monthly usage": "usage.monthlyusage",
        },
    },
    "Models": {
        "Models": {"Models": "llmproxy.languagemodel"},
        "Providers": {"Providers": "llmproxy.provider", "Routes": "llmproxy.route"},
    },
    "Releases": {
        "Channels": {"Channels": "releases.shellchannel", "Releases": "releases.shellrelease"},
        "Apps": {
            "Apps": "releases.microapp",
            "Versions": "releases.appversion",
            "Pins": "releases.apppin",
        },
    },
    "Security": {
        "Audit": {"Audit": "accounts.auditevent"},
        "Sessions & keys": {
            "Sessions": "accounts.session",
            "Personal keys": "llmproxy.personalkey",
            "Signing keys": "accounts.signingkey",
            "Refresh tokens": "accounts.refreshtoken",
            "Connections": "accounts.connection",
            "Revocations": "accounts.connectionrevocation",
        },
    },
    "System": {
        "Jobs & nights": {"Jobs": "procrastinate.procrastinatejob"},
        "Telemetry": {"Telemetry": "telemetry.event"},
    },
}


class Count(NamedTuple):
    """How much of an entry needs attention; ``kind`` is "watch" where nothing has to be done at once."""

    number: int
    kind: str = ""


class Tab(NamedTuple):
    label: str
    href: str
    # "page" on the list itself, "true" on a page of its rows, "" elsewhere.
    current: str


class Entry(NamedTuple):
    label: str
    tabs: list[Tab]
    attention: Count | None

    @property
    def href(self) -> str:
        return self.tabs[0].href

    @property
    def current(self) -> str:
        return next((tab.current for tab in self.tabs if tab.current), "")


class Group(NamedTuple):
    label: str
    entries: list[Entry]


class Navigation(NamedTuple):
    groups: list[Group]

    @property
    def entry(self) -> Entry | None:
        """The entry of the page that is shown."""
        return next((each for group in self.groups for each in group.entries if each.current), None)

    @property
    def tab(self) -> Tab | None:
        """The list of the page that is shown, or of its row."""
        return next((tab for tab in self.entry.tabs if tab.current), None) if self.entry else None


def navigation(site: AdminSite, request: HttpRequest, counts: Mapping[str, Count]) -> Navigation:
    """What this operator's roles may open, and where they are."""
    groups = []
    for group, entries in GROUPS.items():
        shown = []
        for label, pages in entries.items():
            tabs = [
                Tab(name, href, _current(request.path, href))
                for name, page in pages.items()
                if (href := _address(site, request, page))
            ]
            if tabs:
                shown.append(Entry(label, tabs, counts.get(label)))
        if shown:
            groups.append(Group(group, shown))
    return Navigation(groups)


def _current(path: str, href: str) -> str:
    if path == href:
        return "page"
    return "true" if href != reverse("admin:index") and path.startswith(href) else ""


def _address(site: AdminSite, request: HttpRequest, page: str) -> str:
    """The address of a page; "" where it does not exist or this operator may not open it."""
    user: Any = request.user
    name, _, right = page.partition(" ")
    if "." not in name:
        return _reversed(name) if not right or user.has_perm(right) else ""
    app, model = name.split(".")
    found = apps.all_models[app].get(model)
    if found is None or not site.is_registered(found):
        return ""
    if not site.get_model_admin(found).has_view_permission(request):
        return ""
    return _reversed(f"{app}_{model}_changelist")


def _reversed(name: str) -> str:
    try:
        return reverse(f"admin:{name}")
    except NoReverseMatch:
        return ""
