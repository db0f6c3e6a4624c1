"""One field for all: clients, people, calls, refusals, sessions, keys, models, releases, jobs and events.

Only what an operator's roles may list is asked for: one query by index for a kind, and none where the text cannot be
of it.
"""

import re
from collections.abc import Callable, Sequence
from functools import reduce
from itertools import chain
from operator import or_
from typing import Any, NamedTuple
from uuid import UUID

from django.contrib import admin
from django.db.models import Model, Q
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.http import urlencode
from procrastinate.contrib.django.models import ProcrastinateJob

from accounts.models import AuditEvent, Client, Session, User
from config.console.action_views import page_of
from config.console.tables import Column, Link, Row, Table, state_chip
from config.console.template_tags import act
from config.platform.text.forms import email_form
from llmproxy.models import LanguageModel, PersonalKey, Provider
from releases.models import AppVersion, MicroApp, ShellChannel, ShellRelease
from usage.models import Refusal, UsageRecord

SHOWN = 10
# Nothing has a longer name.
LONGEST = 254
# An id, or its beginning as pages show it.
BEGINNING = re.compile(r"[0-9a-f]{8}-?[0-9a-f-]{0,27}")
LARGEST = 2**63 - 1


class Term:
    """What was typed, and how rows are looked up by it."""

    def __init__(self, typed: str) -> None:
        self.text = typed.strip().rstrip("…")[:LONGEST]
        self.hex = self.text.lower().replace("-", "")
        is_id = BEGINNING.fullmatch(self.text.lower()) and len(self.hex) <= 32
        self.ids = [UUID(self.hex.ljust(32, end)) for end in "0f"] if is_id else []

    @property
    def name(self) -> str:
        """The text as a whole id or another name has it, in small letters."""
        return str(self.ids[0]) if self.is_whole else self.text.lower()

    @property
    def email_form(self) -> str:
        """The text as the form of a whole email."""
        return email_form(self.text)

    def id(self, name: str = "id") -> Q:
        """Rows whose id begins with it."""
        return Q(**{f"{name}__range": self.ids}) if self.ids else Q(pk__in=())

    def word(self, *lookups: str) -> Q:
        """Rows by lookups of a text, which an id is not."""
        found = (
            Q(**{lookup: self.text.lower() if lookup[:5] == "email" else self.text})
            for lookup in lookups
            if not self.ids
        )
        return reduce(or_, found, Q(pk__in=()))

    def request_id(self, lookup: str) -> Q:
        """Rows by a request id: this service's are ids, and a caller's may be any word."""
        either: Any = {self.text, str(self.ids[0])} if self.is_whole else {self.text}
        if lookup.endswith("contains"):
            return reduce(or_, (Q(**{lookup: [each]}) for each in either))
        return Q(**{f"{lookup}__in": either})

    def number(self) -> Q:
        is_number = self.hex.isdecimal() and int(self.hex) <= LARGEST
        return Q(pk=int(self.hex)) if is_number else Q(pk__in=())

    @property
    def is_whole(self) -> bool:
        return len(self.hex) == 32 and bool(self.ids)


class Kind(NamedTuple):
    """What is looked for of one model, and the cells of a row after its name, with their labels."""

    title: str
    model: type[Model]
    query: Callable[[Term], Q]
    labels: str
    cells: Callable[[Any], Sequence[Any]]
    name: Callable[[Any], Any] = str
    related: Sequence[str] = ()
    order: Sequence[str] = ()
    # The attributes of which a match of the whole text opens the row at once.
    whole: Sequence[str] = ()

    def found(self, term: Term) -> list[Any]:
        """The rows, one more than are shown if there are more."""
        model: Any = self.model
        rows = model.objects.filter(self.query(term))
        rows = rows.select_related(*self.related) if self.related else rows
        return list(rows.order_by(*self.order)[: SHOWN + 1])

    def is_it(self, row: Any, term: Term) -> bool:
        """Whether the text is the row's id, or another name that it has alone."""
        values = [row.pk, *(getattr(row, each) for each in self.whole)]
        names = chain.from_iterable(each if isinstance(each, list) else [each] for each in values)
        return not {term.name, term.email_form}.isdisjoint(str(each).lower() for each in names)

    def table(self, rows: Sequence[Any], term: Term) -> Table:
        model = self.model._meta.label_lower.replace(".", "_")  # noqa: SLF001 - documented
        address = f"{reverse(f'admin:{model}_changelist')}?{urlencode({'q': term.text})}"
        return Table(
            [Column(label) for label in self.labels.split(", ")],
            [Row([self.name(row), *self.cells(row)], href=page_of(row)) for row in rows[:SHOWN]],
            more=Link(f"All {self.title.lower()}", address) if len(rows) > SHOWN else None,
        )


def _status(client: Client) -> Any:
    licence = getattr(client, "licence", None)
    return state_chip(licence.status) if licence else ""


def _short(row: Any) -> str:
    return f"{str(row.pk)[:8]}…"


# fmt: off
KINDS: tuple[Kind, ...] = (
    Kind("Clients", Client, lambda term: term.id() | term.word("name__icontains", "licence__stripe_customer_id"),
         "Client, Status, Since", lambda row: (_status(row), row.created_at),
         related=("licence",), order=("name",), whole=("name",)),
    Kind("People", User, lambda term: term.id() | term.word("email__contains") | Q(email_form=term.email_form),
         "Person, Client, Last sign-in", lambda row: (row.client and str(row.client), row.last_login),
         related=("client",), order=("email",), whole=("email", "email_form")),
    Kind("Calls", UsageRecord, lambda term: term.id() | term.request_id("request_id"),
         "Call, Person, Model, Time, End", lambda row: (str(row.user), row.model, row.opened_at, row.get_end_display()),
         name=_short, related=("user",), whole=("request_id",)),
    Kind("Refusals", Refusal, lambda term: term.request_id("request_ids__contains"),
         "Refusal, Person, Model, Time", lambda row: (str(row.user or row.address), row.model, row.last_at),
         related=("user",), whole=("request_ids",)),
    Kind("Sessions", Session, lambda term: term.id(), "Session, Person, Started, Last used",
         lambda row: (str(row.user), row.started_at, row.last_used_at), name=_short, related=("user",)),
    Kind("Personal keys", PersonalKey, lambda term: term.id(), "Key, Person, Created",
         lambda row: (str(row.user), row.created_at), related=("user",)),
    Kind("Models", LanguageModel, lambda term: term.word("name__icontains", "routes__provider_name"),
         "Model, Provider's name", lambda row: (row.provider_name,), whole=("name",)),
    Kind("Providers", Provider, lambda term: term.word("name__icontains"), "Provider, Address",
         lambda row: (row.base_url,), whole=("name",)),
    Kind("Channels", ShellChannel, lambda term: term.word("name__icontains"), "Channel, Halted",
         lambda row: (row.halted_at or "",), whole=("name",)),
    Kind("Releases", ShellRelease, lambda term: term.word("version__startswith"), "Release, Published",
         lambda row: (row.published_at,), order=("-published_at",), whole=("version",)),
    Kind("Apps", MicroApp, lambda term: term.word("slug__icontains"), "App, Since", lambda row: (row.created_at,)),
    Kind("App versions", AppVersion, lambda term: term.word("version__startswith", "app__slug"),
         "Version, Published", lambda row: (row.published_at,), order=("-published_at",), whole=("version",)),
    Kind("Jobs", ProcrastinateJob, Term.number, "Job, Number, Status", lambda row: (str(row.pk), row.status),
         name=lambda row: row.task_name),
    Kind("Audit", AuditEvent,
         lambda term: term.request_id("request_id") | Q(target_id=str(term.ids[0]) if term.is_whole else term.text)
         | term.word("target__istartswith"),
         "Activity, By, Time", lambda row: (row.actor, row.at), name=act, order=("-at", "-id")),
)
# fmt: on


def search(request: HttpRequest) -> HttpResponse:
    """The rows of each kind that this operator may list; what the text names alone is opened at once."""
    term = Term(request.GET.get("q", ""))
    site: Any = admin.site
    mine = [kind for kind in KINDS if site.get_model_admin(kind.model).has_view_permission(request)]
    found = {kind: rows for kind in mine if term.text and (rows := kind.found(term))}
    named = [row for kind, rows in found.items() for row in rows if kind.is_it(row, term)]
    # A name may stand for others too, events about it apart; an id, an email or a number is one row's alone.
    number = sum(len(rows) for kind, rows in found.items() if kind.model is not AuditEvent)
    is_sure = term.ids or "@" in term.text or term.text.isdecimal() or number == 1
    if is_sure and len(named) == 1:
        return HttpResponseRedirect(page_of(named[0]))
    context = {
        **site.each_context(request),
        "title": "Search",
        "q": term.text,
        "tables": [(kind.title, kind.table(rows, term)) for kind, rows in found.items()],
        "nothing": [kind.title for kind in mine if kind not in found],
    }
    return TemplateResponse(request, "admin/console/search.html", context)
