"""Items that need attention: every kind names whom it concerns, since when, and which action answers it."""

import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.conf import settings
from django.core.cache import cache
from django.urls import reverse
from procrastinate.contrib.django.models import ProcrastinateJob

from accounts.audit import Actor, record
from accounts.models import Client, Role, Session, User
from config.composition.attention import listing
from config.composition.attention.items import Item
from config.composition.attention.listing import items
from config.composition.attention.operation import counted_jobs
from config.composition.front.page import at_a_glance
from config.console.navigation import Count
from config.platform.attention import SHOWN, Level, kinds
from config.platform.periods import Period
from licensing.licences import set_operator_status
from licensing.models import HeldSuspension, Standing
from llmproxy.catalogue import health
from llmproxy.models import LanguageModel, Provider, Route
from releases.models import Purge, ShellChannel
from tests.conftest import Browser
from tests.console.conftest import World
from tests.console.test_roles import operator_with
from usage.models import Alert, Budget, MonthlyUsage, UsageRecord
from usage.overrides import Allowance, grant_override
from usage.spending.budgets import set_budget
from usage.stops import stop_model_calls

pytestmark = pytest.mark.django_db
HOUR = timedelta(hours=1)
PAGES, NOTICES = (
    {path.stem for path in (settings.BASE_DIR / "templates" / folder / "attention").iterdir()}
    for folder in ("admin", "mail")
)


@pytest.mark.parametrize("name", sorted(PAGES))
def test_an_app_declares_the_kind_of_each_sentence(name: str) -> None:
    assert kinds[name].name == name


def test_every_kind_has_a_sentence_a_place_and_as_an_alert_a_notice() -> None:
    assert {kind.name for kind in kinds} == PAGES
    assert {kind.name for kind in kinds if kind.alert} == NOTICES
    assert len({kind.place for kind in kinds}) == len(PAGES)


def found(now: datetime, kind: str) -> list[Item]:
    return [item for item in items(now=now) if item.kind.name == kind]


def one(now: datetime, kind: str) -> Item:
    [item] = found(now, kind)
    return item


@pytest.fixture
def act(rf: Any, operator: User) -> Any:
    """The label of the action beside an item, for an owner."""
    request = rf.get("/admin/")
    request.user = operator

    def label(item: Item, *, now: datetime) -> str | None:
        lines = at_a_glance(request, now=now)["attention"]
        [line] = [each for each in lines if each.item.name == item.name]
        return line.act and line.act[0]

    return label


def test_a_halted_channel_needs_attention(world: World, act: Any, now: datetime) -> None:
    ShellChannel.objects.update(halted_at=now - HOUR)
    item = one(now, "channel")
    assert str(item) == "Channel stable is halted. Its shells are offered nothing."
    assert (item.level, item.since) == (Level.ACT, now - HOUR)
    # Nothing earlier to go back to.
    assert act(item, now=now) == "Resume"


def test_a_stopped_person_is_named_with_the_reason(
    world: World, by: Actor, act: Any, now: datetime
) -> None:
    reason = "A {loop} in a <macro>."
    stop_model_calls(user_id=world.person.pk, ends_at=None, reason=reason, by=by, now=now)
    item = one(now, "stopped")
    assert str(item) == f"{world.person} is stopped: {reason}"
    assert (item.affected, item.since, act(item, now=now)) == ("1 person", now, "Restart")


def test_many_of_a_kind_are_summed(world: World, by: Actor, now: datetime) -> None:
    for person in world.people:
        stop_model_calls(user_id=person.pk, ends_at=None, reason="x", by=by, now=now)
    *named, rest = found(now, "stopped")
    assert len(named) == SHOWN
    assert str(rest) == f"{len(world.people) - SHOWN} more people are stopped."


def used(person: User, share: int, now: datetime) -> None:
    """The person's output, in percent of the cap, with the alert that its settlement leaves."""
    plan = person.client.licence.plan  # type: ignore[union-attr]
    cap = plan.monthly_output_tokens = 10_000
    plan.save()
    months = MonthlyUsage.objects.filter(user=person)
    months.update(input_used=0, output_used=cap * share // 100, day_used=0)
    kind = Alert.Kind.OUTPUT_ALL if share >= 100 else Alert.Kind.OUTPUT
    month = Period.of(now).month
    Alert.objects.create(user=person, kind=kind, period=month, used=1, cap=cap, noticed_at=now)


def test_caps_reached_and_near_need_attention_by_the_caps_of_now(
    world: World, by: Actor, act: Any, now: datetime
) -> None:
    Alert.objects.all().delete()
    used(world.people[6], 100, now)
    used(world.people[7], 85, now)
    reached, near = found(now, "cap")
    month = f"{now:%B}’s output cap"
    assert str(reached) == f"{world.people[6]} has reached {month}: 10,000 of 10,000 tokens."
    assert str(near) == f"{world.people[7]} is at 85 % of {month}: 8,500 of 10,000 tokens."
    assert (reached.level, near.level) == (Level.ACT, Level.WATCH)
    assert (act(reached, now=now), act(near, now=now)) == ("Raise cap", "Raise cap")
    more = Allowance(monthly_output_tokens=100_000)
    end = now + timedelta(days=20)
    for person in world.people[6:]:
        grant_override(user_id=person.pk, allowance=more, ends_at=end, reason="x", by=by, now=now)
    assert found(now, "cap") == []


def test_budgets_need_attention_with_their_forecast(
    world: World, by: Actor, act: Any, now: datetime
) -> None:
    set_budget(client_id=world.client.pk, monthly=10_000_000, reason="x", by=by, now=now)
    month = Period.of(now)
    Budget.objects.update(period=month.month, spent=9_900_000, warned_at=now)
    # On any day: the pace of ten days, and that of a whole month.
    for at, is_spent in (
        (month.month_start + timedelta(days=10), True),
        (month.next_month - timedelta(minutes=1), False),
    ):
        item = one(at, "budget")
        assert str(item).startswith("Acme is at 99 % of its budget: $9.90 of $10.00.")
        assert ("At this pace it runs out" in str(item)) == is_spent
    assert (item.level, item.affected) == (Level.WATCH, "8 people")
    Budget.objects.update(spent=14_200_000, exceeded_at=now)
    item = one(now, "budget")
    assert "$14.20 of $10.00 (142 %)" in str(item)
    assert (item.level, act(item, now=now)) == (Level.ACT, "Set budget")


def test_graces_decisions_and_overrides_that_end_soon_need_attention(
    world: World, by: Actor, act: Any, now: datetime
) -> None:
    item = one(now, "licence")
    assert str(item).startswith("Acme is in its grace period until ")
    assert (item.affected, act(item, now=now)) == ("8 people", "Change status")
    set_operator_status(
        licence_id=world.client.licence.pk, status=Standing.ACTIVE, grace_until=None,
        ends_at=now + timedelta(days=2), reason="x", by=by, now=now,
    )  # fmt: skip
    assert str(one(now, "licence")).startswith("Acme is active by an operator until ")
    assert found(now, "override") == []
    later = now + timedelta(days=5)
    named = found(later, "override")
    assert act(named[0], now=later) == "Extend"
    assert len(named) == SHOWN
    assert str(named[0]).startswith(f"The override of {world.people[0]} ends ")


def test_a_held_suspension_needs_attention(world: World, act: Any, now: datetime) -> None:
    HeldSuspension.objects.create(job="expire_grace", licence_ids=[1, 2], clients=2, noticed_at=now)
    item = one(now, "suspensions")
    assert str(item) == "2 suspensions wait for you: 2 of 2 clients at once."
    assert (item.affected, act(item, now=now)) == ("2 clients", "Confirm")


@pytest.fixture
def provider(world: World) -> Iterator[Provider]:
    cache.clear()
    provider = Provider.objects.create(name="fast", base_url="https://fast.example/v1")
    small = LanguageModel.objects.get(name="small")
    Route.objects.create(model=small, provider=provider, provider_name="fast-small", order=1)
    yield provider
    cache.clear()


def test_a_failing_an_unreachable_and_a_paused_provider_need_attention(
    provider: Provider, act: Any, now: datetime
) -> None:
    for _ in range(5):
        health.note(provider.name, failed=True)
    health.write_counts(now=now)
    item = one(now, "provider")
    assert str(item) == "Provider fast is unreachable."
    assert (item.level, item.affected, act(item, now=now)) == (Level.ACT, "5 failures", "Try it")
    health.note(provider.name, failed=False)
    health.write_counts(now=now)
    item = one(now, "provider")
    assert str(item) == "Provider fast fails more calls than it answers."
    route = health.RouteKey("fast", "fast-small")
    health.readiness.note_failure(route, wait=20, now=now)
    until = f"{now + timedelta(seconds=20):%H:%M}"
    assert str(one(now, "provider")) == f"fast takes no calls for fast-small until {until}."
    small = LanguageModel.objects.get(name="small")
    spare = Provider.objects.create(name="spare", base_url="https://spare.test")
    Route.objects.create(model=small, provider=spare, provider_name="theirs", order=99)
    said = f"fast takes no calls for fast-small until {until}. spare answers."
    assert str(one(now, "provider")) == said
    Provider.objects.filter(name="spare").update(is_on=False)
    assert "answers." not in str(one(now, "provider"))


def test_routes_without_prices_are_named_and_spare_ones_apart(
    provider: Provider, by: Actor, act: Any, now: datetime
) -> None:
    small = LanguageModel.objects.get(name="small")
    Route.objects.get_or_create(
        model=small,
        provider=Provider.objects.get_or_create(name="default")[0],
        defaults={"provider_name": "x", "order": 0},
    )
    assert found(now, "unpriced") == []
    set_budget(client_id=Client.objects.first().pk, monthly=10, reason="x", by=by, now=now)  # type: ignore[union-attr]
    first, spare = found(now, "unpriced")
    left_out = "do not count towards budgets."
    assert str(first) == f"1 model has no price: small. Its calls {left_out}"
    said = "1 spare route has no price: small at fast. Calls that fail over there"
    assert str(spare) == f"{said} {left_out}"
    assert (first.affected, act(first, now=now)) == ("1 client", "Set prices")
    Provider.objects.filter(name="default").update(is_on=False)
    assert str(one(now, "unpriced")).startswith("1 model has no price: small.")


def test_models_without_prices_are_one_finding_with_one_act(
    provider: Provider, by: Actor, act: Any, console: Browser, now: datetime
) -> None:
    set_budget(client_id=Client.objects.first().pk, monthly=10, reason="x", by=by, now=now)  # type: ignore[union-attr]
    for name in ("a", "b", "c", "d", "e", "f", "g"):
        model = LanguageModel.objects.create(name=name, provider_name=name)
        Route.objects.create(model=model, provider=provider, provider_name=name)
    Route.objects.filter(model__name="small").delete()
    item = one(now, "unpriced")
    said = "7 models have no price: a, b, c, d, e, f and 1 other. Their calls"
    assert str(item) == f"{said} do not count towards budgets."
    assert act(item, now=now) == "Set prices"
    [address] = set(
        re.findall(
            r'href="([^"]*input_price__isnull=True)"', console.get("/admin/").content.decode()
        )
    )
    assert console.get(address).context["cl"].result_count == 7


def test_abandoned_calls_and_implausible_reports_need_attention(
    world: World, act: Any, now: datetime
) -> None:
    call = UsageRecord.objects.filter(state="settled").first()
    assert call is not None
    same = {"user": world.person, "period": Period.of(now).day, "used": 34, "cap": 20}
    Alert.objects.create(kind=Alert.Kind.ABANDONED, noticed_at=now, **same)
    Alert.objects.create(kind=Alert.Kind.REPORT, noticed_at=now, record_id=call.pk, **same)
    report, item = sorted(found(now, "alert"), key=lambda each: each.row.kind, reverse=True)
    assert str(item) == f"{world.person} abandoned 34 calls within an hour."
    assert act(item, now=now) == "Stop calls"
    assert str(report).startswith("A provider’s report on a call by ")
    assert act(report, now=now) is None
    Alert.objects.update(told_at=now)
    assert found(now + timedelta(days=2), "alert") == []


def test_the_reuse_of_a_token_needs_attention_for_a_day(
    world: World, act: Any, now: datetime
) -> None:
    session = Session.objects.filter(user=world.person).first()
    assert session is not None
    by = Actor(name="whoever presented the token")
    record("session:token_reused", world.person.email, by=by, now=now, target_id=session.pk)
    item = one(now, "reuse")
    assert str(item).startswith(f"A replaced token of {world.person} was presented again")
    assert (item.since, act(item, now=now)) == (now, "End sessions")
    assert found(now + timedelta(days=2), "reuse") == []


def test_a_failed_purge_needs_attention(
    world: World, act: Any, now: datetime, settings: Any
) -> None:
    settings.CDN_PURGE = "purge"
    channel = ShellChannel.objects.get()
    Purge.objects.create(
        channel=channel, asked_at=now, tried_at=now, due_at=now, attempts=2, failure="old_bytes"
    )
    item = one(now, "not_purged")
    assert str(item) == "The CDN does not serve what stable offers (old_bytes)."
    assert act(item, now=now) == "Purge again"


def test_findings_to_act_on_come_first_and_then_the_newest(world: World, now: datetime) -> None:
    ShellChannel.objects.update(halted_at=now - HOUR)
    HeldSuspension.objects.create(job="expire_grace", licence_ids=[1], clients=2, noticed_at=now)
    found = items(now=now)
    assert [each.level for each in found] == sorted(each.level for each in found)
    names = [each.kind.name for each in found]
    assert names.index("suspensions") < names.index("channel") < names.index("licence")


@pytest.mark.parametrize("role", sorted(Role.values))
def test_each_role_sees_its_areas_alone_and_links_that_it_may_open(
    role: str, world: World, by: Actor, now: datetime
) -> None:
    ShellChannel.objects.update(halted_at=now)
    stop_model_calls(user_id=world.person.pk, ends_at=None, reason="x", by=by, now=now)
    operator = operator_with(role)
    found = {item.kind.name for item in items(now=now, operator=operator)}
    assert ("stopped" in found) == (role != Role.RELEASE)
    assert ("channel" in found) == (role != Role.LICENSING)
    assert all(operator.has_perm(kind.right) for kind in kinds if kind.name in found)


def test_the_sidebar_counts_by_area_what_an_operator_may_see(
    world: World, by: Actor, now: datetime
) -> None:
    ShellChannel.objects.update(halted_at=now)
    stop_model_calls(user_id=world.person.pk, ends_at=None, reason="x", by=by, now=now)
    listing.look(now=now)
    release = listing.counts(operator_with(Role.RELEASE))
    assert release["Channels"] == Count(1)
    assert "People" not in release
    owner = operator_with(Role.OWNER)
    assert listing.counts(owner)["People"] == Count(2)
    assert "Channels" not in listing.counts(owner, found=[])


def test_a_role_without_the_action_gets_none(world: World, by: Actor, now: datetime) -> None:
    stop_model_calls(user_id=world.person.pk, ends_at=None, reason="x", by=by, now=now)
    address = reverse("admin:accounts_user_restart_calls", args=[world.person.pk])
    for role, offered in ((Role.SUPPORT, True), (Role.LICENSING, False), (Role.AUDITOR, False)):
        page = Browser()
        page.force_login(operator_with(role))
        text = page.get("/admin/").content.decode()
        assert (address in text) == offered, role
        assert f"{world.person}</a> is stopped" in text


def test_jobs_that_have_begun_since_they_were_found_are_no_item(db: None, now: datetime) -> None:
    assert list(counted_jobs(ProcrastinateJob.objects.filter(pk=0), now)) == []
