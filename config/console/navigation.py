"""The sidebar: the console's pages, grouped by task. The lists of one entry are the tabs of its page."""

from collections.abc import Mapping
from functools import cache
from typing import Any, Final, NamedTuple

from django.apps import apps
from django.contrib.admin import AdminSite
from django.db.models import Model
from django.http import HttpRequest
from django.urls import reverse
from django.utils.text import capfirst

# Groups, their entries, and the pages of each: lists of models, or other pages by name.
GROUPS: Final[Mapping[str, Mapping[str, str]]] = {
    "": {"Overview": "index"},
    "Clients & people": {
        "Clients": "accounts.client licensing.licence licensing.plan licensing.heldsuspension",
        "People": "accounts.user",
        "Operators": "accounts.operator",
    },
    "Usage": {
        "Calls": "usage.usagerecord usage.runningcall usage.refusal",
        "Usage & money": "usage_and_money",
        "Latency & errors": "latency",
        "Limits & budgets": "usage.budget usage.spendlimit usage.override usage.stop usage.alert usage.monthlyusage",
    },
    "Models": {"Models": "llmproxy.languagemodel", "Providers": "llmproxy.provider llmproxy.route"},
    "Releases": {
        "Channels": "releases.shellchannel releases.shellrelease licensing.servicenotice",
        "Apps": "releases.microapp releases.appversion releases.apppin",
    },
    "Security": {
        "Audit": "accounts.auditevent",
        "Sessions & keys": "accounts.session llmproxy.personalkey accounts.signingkey accounts.refreshtoken "
        "accounts.connection accounts.connectionrevocation",
    },
    "System": {
        "Background jobs": "procrastinate.procrastinatejob",
        "Telemetry": "telemetry.event",
        "Settings": "settings",
    },
}
# Names of lists that differ from their models'.
LABELS: Final = {
    "accounts.auditevent": "Audit", "accounts.connectionrevocation": "Revocations", "accounts.user": "People",
    "index": "Overview", "latency": "Latency & errors", "licensing.heldsuspension": "Held suspensions",
    "licensing.servicenotice": "All shells", "llmproxy.languagemodel": "Models",
    "procrastinate.procrastinatejob": "Background jobs", "releases.apppin": "Pins", "releases.appversion": "Versions",
    "releases.microapp": "Apps", "releases.shellchannel": "Channels", "releases.shellrelease": "Releases",
    "settings": "Settings",
    "telemetry.event": "Telemetry", "usage.spendlimit": "Spending limits", "usage_and_money": "Usage & money",
}  # fmt: skip
# The rights for pages that are no lists; any other is open to every operator.
RIGHTS: Final = {
    "latency": "usage.view_monthlyusage",
    "settings": "accounts.view_signingkey",
    "usage_and_money": "usage.view_monthlyusage",
}


class Count(NamedTuple):
    """The number of items of an entry that need attention; ``kind`` is "watch" where none is urgent."""

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
    def tab(self) -> Tab | None:
        """Returns the list that the page shows, or whose row it shows."""
        return next((tab for tab in self.tabs if tab.current), None)


def navigation(
    site: AdminSite, request: HttpRequest, counts: Mapping[str, Count]
) -> dict[str, Any]:
    """Returns the ``groups`` of entries that this operator may open, and the ``entry`` and ``tab`` of the page."""
    groups = {
        group: [
            Entry(label, tabs, counts.get(label))
            for label, pages in entries.items()
            if (tabs := _tabs(site, request, pages))
        ]
        for group, entries in GROUPS.items()
    }
    groups = {group: entries for group, entries in groups.items() if entries}
    here = next((each for every in groups.values() for each in every if each.tab), None)
    return {"groups": groups, "entry": here, "tab": here and here.tab}


def label_of(page: str) -> str:
    """Returns the console's name for a page, such as the list of ``accounts.user``."""
    if page in LABELS:
        return LABELS[page]
    meta = apps.get_model(page)._meta  # noqa: SLF001 - Django's documented API
    return capfirst(str(meta.verbose_name_plural))


def page_of(row: Model) -> str:
    """The address of a row's page."""
    meta = row._meta  # noqa: SLF001 - Django's documented API
    return reverse(f"admin:{meta.app_label}_{meta.model_name}_change", args=[row.pk])


def _tabs(site: AdminSite, request: HttpRequest, pages: str) -> list[Tab]:
    addresses = {page: _address(site, request, page) for page in pages.split()}
    return [
        Tab(label_of(page), address, _current(request.path, address))
        for page, address in addresses.items()
        if address
    ]


@cache
def _route(page: str) -> str:
    """The address of a page, found once: every page has the sidebar, and addresses of lists never change."""
    return reverse(f"admin:{page}")


def _current(path: str, address: str) -> str:
    inside = address != _route("index") and path.startswith(address)
    return "page" if path == address else "true" if inside else ""


def _address(site: AdminSite, request: HttpRequest, page: str) -> str:
    """The address of a page; "" where this operator may not open it."""
    user: Any = request.user
    app, _, name = page.partition(".")
    if name:
        if not site.get_model_admin(apps.get_model(page)).has_view_permission(request):
            return ""
        page = f"{app}_{name}_changelist"
    elif page in RIGHTS and not user.has_perm(RIGHTS[page]):
        return ""
    return _route(page)
