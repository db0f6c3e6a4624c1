"""The overview on a bad day: something of nearly every kind, in few queries, each with whom it concerns."""

from collections import Counter
from collections.abc import Callable
from datetime import datetime
from importlib import import_module
from types import ModuleType
from typing import Any

import pytest
from django.apps import apps
from django.core.cache import cache
from django.db import connection
from django.test.utils import CaptureQueriesContext
from procrastinate.contrib.django.models import ProcrastinateJob

from accounts.audit import Actor
from accounts.models import Client, Role, User
from config.composition.attention.items import had_rows
from config.composition.attention.listing import about_client, items
from config.platform.attention import kinds
from config.platform.declarations import DeclaringApp
from config.platform.periods import Period
from tests.conftest import Browser
from tests.console.bad_days import Day
from tests.console.conftest import World
from tests.console.test_roles import operator_with
from usage.models import (
    Alert,
    MonthlyUsage,
    Override,
    Refusal,
    Stop,
)

pytestmark = pytest.mark.django_db
# Rows that the overview reads beside those of people at caps, which are compared one by one.
MOST_ROWS = 300


def of_apps() -> list[ModuleType]:
    """The modules beside each app's tests that add rows for its kinds of attention."""
    declaring = (each for each in apps.get_app_configs() if isinstance(each, DeclaringApp))
    # The machine of attention is of composition, and so are the kinds that no app owns.
    names = sorted("composition" if each.name == "config" else each.name for each in declaring)
    names.sort(key=lambda name: name != "composition")
    return [import_module(f"tests.{name}.attention") for name in names]


def quiet() -> set[str]:
    """The kinds that a bad day does not have, and the worst day has too."""
    return {kind for each in of_apps() for kind in getattr(each, "QUIET", ())}


@pytest.fixture
def bad_day(world: World, by: Actor, now: datetime, settings: Any) -> World:
    cache.clear()
    for each in of_apps():
        each.bad_day(Day(world, by, now, settings))
    return world


@pytest.fixture
def worst_day(bad_day: World, by: Actor, now: datetime, settings: Any) -> World:
    """Something of every kind."""
    for each in of_apps():
        if hasattr(each, "worst_day"):
            each.worst_day(Day(bad_day, by, now, settings))
    return bad_day


# Each kind has a query; the others are counted here.
@pytest.mark.parametrize(("day", "more", "least"), [("bad_day", 2, 20), ("worst_day", 13, 30)])
def test_twenty_items_take_at_most_35_queries_and_those_of_all_kinds_46(
    console: Browser, request: pytest.FixtureRequest, day: str, more: int, least: int
) -> None:
    # A query for each part of a front page: ManageIQ/manageiq-ui-classic#9981, php-censor/php-censor#120.
    request.getfixturevalue(day)
    console.get("/admin/")
    with CaptureQueriesContext(connection) as asked:
        page = console.get("/admin/")
    shown = page.context["glance"]["items"]
    assert len(shown) >= least
    missing = {kind.name for kind in kinds} - {item.kind.name for item in shown}
    assert missing <= (quiet() if day == "bad_day" else set())
    assert len(asked) <= len([*kinds]) + more, "\n".join(each["sql"][:200] for each in asked)


def test_hundreds_of_people_cost_no_more_than_their_counts(
    console: Browser, bad_day: World, now: datetime
) -> None:
    # A front page that counts or loads all that there is: omeka/omeka-s#1676, Aam-Digital/ndb-core#4253.
    period = Period.of(now)
    more = [User(email=f"more-{each}@acme.test", client=bad_day.client) for each in range(400)]
    User.objects.bulk_create(more)
    of_now = {"period": period.month, "day": period.day, "output_used": 10**9}
    MonthlyUsage.objects.bulk_create(MonthlyUsage(user=each, **of_now) for each in more)
    noted = {"used": 34, "cap": 20, "noticed_at": now}
    for kind, of in ((Alert.Kind.ABANDONED, period.day), (Alert.Kind.OUTPUT, period.month)):
        Alert.objects.bulk_create(Alert(user=each, kind=kind, period=of, **noted) for each in more)
    Stop.objects.bulk_create(Stop(user=each, stopped_at=now, reason="Loops.") for each in more)
    console.get("/admin/")
    with CaptureQueriesContext(connection) as asked:
        page = console.get("/admin/")
    # Numbers of further alerts and stopped people; those at caps are counted as they are compared.
    assert len(asked) <= 37
    by_kind = Counter(item.kind.name for item in page.context["glance"]["items"])
    assert (by_kind["stopped"], by_kind["alert"], by_kind["cap"]) == (4, 4, 6)
    assert rows_read(lambda: console.get("/admin/")) <= len(more) + MOST_ROWS


def rows_read(work: Callable[[], object]) -> int:
    """Returns the number of rows that the queries of some work return."""
    read = 0

    def counted(execute: Any, sql: Any, params: Any, many: Any, context: Any) -> Any:
        nonlocal read
        done = execute(sql, params, many, context)
        read += max(context["cursor"].rowcount, 0)
        return done

    with connection.execute_wrapper(counted):
        work()
    return read


def test_a_kind_that_had_rows_and_has_none_is_not_shown(
    console: Browser, bad_day: World, now: datetime
) -> None:
    assert {item.kind.name for item in items(now=now)} >= {"stopped", "override", "failed_jobs"}
    Stop.objects.all().delete()
    Override.objects.all().delete()
    ProcrastinateJob.objects.filter(status="failed").delete()
    for _ in range(2):
        shown = {item.kind.name for item in items(now=now)}
        assert not shown & {"stopped", "override", "failed_jobs"}


def test_the_page_of_one_client_changes_nothing_that_a_process_expects(
    bad_day: World, operator: User, now: datetime
) -> None:
    list(items(now=now))
    expected = {*had_rows}
    assert "stopped" in expected
    without = Client.objects.create(name="Without problems", created_at=now)
    about_client(without.pk, now=now, operator=operator)
    assert had_rows == expected


def test_each_item_begins_with_what_is_wrong_in_bold_and_fits_its_row(
    console: Browser, bad_day: World, now: datetime
) -> None:
    for item in items(now=now):
        assert str(item.sentence()).startswith("<b>"), item
        assert len(item.affected) <= 14, item
    for line in console.get("/admin/").context["glance"]["attention"]:
        assert line.act is None or len(line.act[0]) <= 13, line.act


def test_each_alert_has_a_notice_with_a_subject_and_mostly_a_text(
    worst_day: World, now: datetime
) -> None:
    alerts = [item for item in items(now=now) if item.is_alert]
    assert {item.kind.name for item in alerts} == {kind.name for kind in kinds if kind.alert}
    for item in alerts:
        subject, text = item.notice()
        assert subject, item
        # The rule that mails of it has the text.
        assert text or item.is_mailed_by_rule, item


def test_at_least_half_of_the_items_name_the_people_affected(bad_day: World, now: datetime) -> None:
    found = items(now=now)
    named = [item for item in found if item.affected]
    assert len(named) * 2 >= len(found), [item.kind.name for item in found if not item.affected]


def test_people_whom_a_cap_refused_are_named_with_their_refusals_and_an_act(
    bad_day: World, now: datetime
) -> None:
    person = bad_day.people[3]
    [item] = [each for each in items(now=now) if str(each).startswith(person.email)]
    assert f"{person} has reached {now:%B}’s output cap:" in str(item)
    assert str(item).endswith("3 calls refused today.")
    for role, offered in ((Role.SUPPORT, True), (Role.LICENSING, True), (Role.AUDITOR, False)):
        browser = Browser()
        browser.force_login(operator_with(role))
        lines = browser.get("/admin/").context["glance"]["attention"]
        [line] = [each for each in lines if each.item.name == item.name]
        assert bool(line.act) == offered, role
        if line.act:
            assert line.act[0] == "Raise cap"
            assert person.email in browser.get(line.act[1]).content.decode()


def test_a_person_whom_the_days_limit_refused_is_named_before_80_percent_are_used(
    world: World, now: datetime
) -> None:
    Alert.objects.all().delete()
    person = world.people[4]
    same = {"user": person, "minute": now, "last_at": now, "status": 429}
    Refusal.objects.create(code="daily_limit_reached", number=2, **same)
    plan = Client.objects.get(pk=world.client.pk).licence.plan
    plan.daily_tokens, plan.monthly_input_tokens, plan.monthly_output_tokens = 1_000, None, None
    plan.save()
    MonthlyUsage.objects.filter(user=person).update(day_used=700)
    [item] = [each for each in items(now=now) if each.kind.name == "cap"]
    assert str(item) == (
        f"{person} is at 70 % of today’s limit: 700 of 1,000 tokens. 2 calls refused today."
    )
    # Refusals for another reason are no caps'.
    Refusal.objects.update(code="rate_limited")
    assert [each for each in items(now=now) if each.kind.name == "cap"] == []
