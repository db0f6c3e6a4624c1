"""Filters of lists by address: those that pages offer, and none on hidden columns."""

import re
from collections.abc import Iterator
from html import unescape
from typing import Any
from urllib.parse import parse_qsl, urljoin, urlsplit

import pytest
from django.contrib import admin
from django.contrib.admin import ModelAdmin
from django.contrib.admin.utils import get_fields_from_path
from django.contrib.auth.models import Group, Permission
from django.contrib.contenttypes.models import ContentType
from django.db import connection
from django.db.models import BinaryField, Model
from django.test import RequestFactory
from django.urls import reverse
from procrastinate.contrib.django.admin import ProcrastinateJobAdmin
from procrastinate.contrib.django.models import ProcrastinateJob

from accounts.models import AuditEvent, RefreshToken, Role, User
from config.composition.client_month import PEOPLE_SHOWN
from config.composition.site import ConsoleSite
from config.console.list_filters import UnknownFilter
from config.console.lists.tags import listed
from telemetry.models import Event
from tests.conftest import Browser
from tests.console.conftest import World
from tests.console.test_pages import every_page
from tests.console.test_roles import operator_with
from usage.models import Refusal, UsageRecord

pytestmark = pytest.mark.django_db

HOWS = ("", "__exact", "__startswith", "__lt", "__regex", "__isnull", "__in")
SECRET = {"password", "token_hash", "state_hash", "args"}


def address_of(model: type[Model]) -> str:
    return reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist")


def columns(model: type[Model], *, relations: int) -> Iterator[str]:
    """Whatever a lookup can begin with: columns, annotations, and those of so many relations further on."""
    yield "pk"
    yield from model._default_manager.all().query.annotations
    for field in model._meta.get_fields():
        yield field.name
        if relations and field.related_model not in (None, Permission, Group, ContentType):
            further = columns(field.related_model, relations=relations - 1)  # type: ignore[arg-type]
            yield from (f"{field.name}__{each}" for each in further)


def offered(console: Any, request: Any) -> set[str]:
    """The names in the addresses that a list's filters make, with the calendar's."""
    changes = console.get_changelist_instance(request)
    names = {name for spec in changes.filter_specs for name in spec.expected_parameters()}
    # Those that show nothing for lack of a choice, too.
    names |= {getattr(each, "parameter_name", "") for each in changes.list_filter}
    for path in (each for each in changes.list_filter if isinstance(each, str)):
        field: Any = get_fields_from_path(console.model, path)[-1]
        to = f"{path}__{field.target_field.name}" if field.is_relation else path
        names |= {f"{to}__exact", f"{path}__isnull"}
    # A year and what is in it, and what Django makes of them.
    days = (f"{console.date_hierarchy}__{how}" for how in ("year", "month", "day", "gte", "lt"))
    return names.union(days)


def links(browser: Browser, world: World) -> set[str]:
    """The addresses with a query of all links of all pages, those of lists' own filters included."""
    # More people than a client's page shows, so that it leads to all of them.
    more = (f"the-{number}th@acme.test" for number in range(PEOPLE_SHOWN))
    User.objects.bulk_create(User(email=each, client=world.client) for each in more)
    when = {"minute": world.person.created_at, "last_at": world.person.created_at}
    Refusal.objects.create(
        user=world.person, client_id=world.client.pk, code="rate_limited", status=429, **when
    )
    found = set()
    for address in every_page():
        text = browser.get(address).content.decode()
        hrefs = (unescape(each) for each in re.findall(r'href="([^"]*\?[^"]+)"', text))
        found |= {urljoin(address, each) for each in hrefs}
    return found


@pytest.fixture
def viewer(stranger: Browser) -> Browser:
    """A browser of somebody who may look at everything and do nothing."""
    stranger.force_login(operator_with(Role.AUDITOR))
    return stranger


@pytest.mark.parametrize(
    ("model", "lookup"),
    [
        ("accounts_user", "password__startswith=argon2"),
        ("accounts_user", "client__licence__stripe_customer_id__startswith=cus"),
        ("accounts_session", "user__password__startswith=argon2"),
        ("accounts_refreshtoken", "token_hash__startswith=$"),
        ("accounts_refreshtoken", "id__lt=80000000-0000-0000-0000-000000000000"),
        ("accounts_refreshtoken", "pk__lt=80000000-0000-0000-0000-000000000000"),
        ("accounts_refreshtoken", "retry_box__isnull=1"),
        ("accounts_signingkey", "private_key__gt=a"),
        ("accounts_connection", "access_token__gt=a"),
        ("accounts_connectionrevocation", "tokens__gt=a"),
        ("procrastinate_procrastinatejob", "args__text__startswith=https"),
    ],
)
def test_a_column_that_is_never_shown_cannot_be_guessed_by_filtering(
    viewer: Browser, world: World, model: str, lookup: str
) -> None:
    answer = viewer.get(f"{reverse(f'admin:{model}_changelist')}?{lookup}")
    assert answer.status_code == 400
    assert "This list cannot be filtered by that." in answer.content.decode()


@pytest.mark.full
def test_every_list_refuses_every_lookup_that_no_page_offers(
    console: Browser, operator: User, world: World, rf: RequestFactory
) -> None:
    leading = [urlsplit(each) for each in links(console, world)]
    tried, taken = 0, []
    for model, page in admin.site._registry.items():
        address = address_of(model)
        request = rf.get(address)
        request.user = operator
        # Beside those of links, addresses that operators keep.
        known = offered(page, request) | {*page.link_lookups}
        known |= {name for to in leading if to.path == address for name, _ in parse_qsl(to.query)}
        for column in dict.fromkeys(columns(model, relations=2)):
            # Far from home one is enough; there are thousands.
            for how in HOWS if column.count("__") < 2 else ("__startswith",):
                if (lookup := f"{column}{how}") in known:
                    continue
                tried += 1
                asked = rf.get(address, {lookup: "1"})
                asked.user = operator
                try:
                    page.get_changelist_instance(asked)
                except UnknownFilter:
                    continue
                taken.append((model.__name__, lookup))
    assert taken == []
    assert tried > 3000


@pytest.mark.full
def test_every_link_with_a_query_still_leads_somewhere(console: Browser, world: World) -> None:
    found = links(console, world)
    users, sessions = (reverse(f"admin:accounts_{each}_changelist") for each in ("user", "session"))
    assert f"{users}?client__id__exact={world.client.pk}" in found
    assert f"{sessions}?user__id__exact={world.person.pk}" in found
    for address in sorted(found):
        assert console.get(address).status_code == 200, address


def test_a_link_lists_what_it_asks_for(console: Browser, world: World) -> None:
    for name in ("accounts_session", "accounts_connection", "usage_usagerecord"):
        address = f"{reverse(f'admin:{name}_changelist')}?user__id__exact={world.person.pk}"
        rows = console.get(address).context["cl"].result_list
        assert {row.user_id for row in rows} == {world.person.pk}
    people = f"{address_of(User)}?client__id__exact={world.client.pk}"
    assert {row.client_id for row in console.get(people).context["cl"].result_list} == {
        world.client.pk
    }


def test_days_of_a_calendar_can_be_chosen(console: Browser, world: World) -> None:
    overrides = reverse("admin:usage_override_changelist")
    for query in ("ends_at__year=2026", "ends_at__year=2026&ends_at__month=3&ends_at__day=1"):
        assert console.get(f"{overrides}?{query}").status_code == 200
    assert console.get(f"{overrides}?reason__startswith=M").status_code == 400


def test_a_page_of_somebody_else_refuses_them_too(operator: User, rf: RequestFactory) -> None:
    site = ConsoleSite()
    site.register(ProcrastinateJob, ProcrastinateJobAdmin)
    site.register([RefreshToken])
    for model, lookup in ((ProcrastinateJob, "args__text__contains"), (RefreshToken, "id__lt")):
        page = site.get_model_admin(model)
        assert isinstance(page, ModelAdmin)
        request = rf.get("/", {lookup: "1"})
        request.user = operator
        with pytest.raises(UnknownFilter):
            page.get_changelist_instance(request)


@pytest.mark.parametrize("field", ["replaced_by", "user", "replaces"])
def test_ids_are_not_to_be_had_as_proposals_for_a_form(
    console: Browser, world: World, field: str
) -> None:
    meant = {"app_label": "accounts", "model_name": "refreshtoken", "field_name": field}
    answer = console.get(reverse("admin:autocomplete"), {**meant, "term": ""})
    assert answer.status_code == 404
    assert not [each for each in world.secrets if each in answer.content.decode()]


def test_a_list_that_offers_no_order_is_in_its_own(console: Browser, world: World) -> None:
    unsorted = [model for model, page in admin.site._registry.items() if page.sortable_by == ()]
    assert {RefreshToken, AuditEvent, Event} < {*unsorted}
    for model in unsorted:
        orders = {
            tuple(console.get(f"{address_of(model)}{query}").context["cl"].queryset.query.order_by)
            for query in ("", "?o=0", "?o=1", "?o=-2.3")
        }
        assert len(orders) == 1, model


def test_no_column_is_named_like_a_relation_that_would_list_a_row_several_times() -> None:
    for model, page in admin.site._registry.items():
        many = {
            each.name for each in model._meta.get_fields() if each.one_to_many or each.many_to_many
        }
        assert not many.intersection(page.list_display), model


@pytest.mark.full
def test_no_list_is_sorted_or_searched_by_what_is_never_shown(
    console: Browser, world: World
) -> None:
    def tells(model: type[Model], path: str) -> bool:
        """Returns whether it is a secret's column, or a relation to rows that are ordered by one."""
        name, _, further = path.lstrip("-=^@").partition("__")
        names = {each.name: each for each in model._meta.get_fields()}
        if name not in names:
            return False
        field = names[name]
        if field.related_model is None:
            return isinstance(field, BinaryField) or name in SECRET
        related: Any = field.related_model
        return any(
            tells(related, each) for each in ([further] if further else related._meta.ordering)
        )

    for model, page in admin.site._registry.items():
        for place in range(len(page.list_display) + 1):
            changes = console.get(address_of(model), {"o": str(place)}).context["cl"]
            sorted_by = changes.queryset.query.order_by
            assert not [each for each in sorted_by if tells(model, str(each))], (model, place)
        assert not [each for each in page.search_fields if tells(model, each)], model
        assert not [each for each in page.uuid_fields if tells(model, each)], model


def test_a_list_is_planned_for_what_is_looked_for(console: Browser, world: World) -> None:
    """A plan for any values, which PostgreSQL makes of a prepared statement, uses no partial index."""

    def prepared() -> set[str]:
        with connection.cursor() as cursor:
            cursor.execute("SELECT statement FROM pg_prepared_statements")
            return {statement for (statement,) in cursor.fetchall()}

    before = prepared()
    for _ in range(3):
        response = console.get(f"{address_of(UsageRecord)}?q=nobody")
        assert response.status_code == 200
    assert any("django_session" in statement for statement in prepared())
    assert not any("usage_usagerecord" in statement for statement in prepared() - before)


def test_a_sentence_with_an_instant_is_no_column_of_times() -> None:
    """Its cells would not wrap, and the list would scroll sideways."""
    sentence = '<td class="field-changed"><div class="changes">Stopped until <time datetime="x">5</time></div></td>'
    moment = '<td class="field-at"><time datetime="x">5</time></td>'
    headers = [{"text": "What changed"}, {"text": "When"}]
    shown = listed([[sentence, moment]], headers)
    assert [kind for _, kind in shown["headers"]] == ["", "time"]
