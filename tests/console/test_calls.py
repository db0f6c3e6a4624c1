"""Calls in flight in the console: seeing them, ending one, stopping and restarting a person's."""

import re
from datetime import UTC, datetime, timedelta

import pytest
from django.urls import reverse
from django.utils.html import strip_tags

from accounts.models import AuditEvent, Role, User
from tests.conftest import Browser
from tests.console.conftest import World
from usage.models import Override, Stop, UsageRecord

pytestmark = pytest.mark.django_db

RUNNING = reverse("admin:usage_runningcall_changelist")


def act(person: User, name: str) -> str:
    return reverse(f"admin:accounts_user_{name}", args=[person.pk])


def shown(browser: Browser, address: str) -> str:
    return " ".join(browser.get(address).content.decode().split())


def running_of(person: User) -> UsageRecord:
    return UsageRecord.objects.open().get(user=person)


def test_a_running_call_is_listed_and_an_ended_one_is_not(console: Browser, world: World) -> None:
    call = running_of(world.person)
    UsageRecord.objects.filter(pk=call.pk).update(
        checkpoint_at=call.opened_at, checkpoint_input=7, checkpoint_output=1_234
    )
    listed = console.get(RUNNING)
    assert listed.context["cl"].result_count == len(world.people)
    text = " ".join(listed.content.decode().split())
    for said in (world.person.email, "Acme", "small", "Running", "1,234", "s ago"):
        assert said in text, said
    assert RUNNING in shown(console, reverse("admin:usage_usagerecord_changelist"))
    page = shown(console, reverse("admin:usage_runningcall_change", args=[call.pk]))
    assert str(call.pk) in page


def test_an_abandoned_call_is_marked_and_cannot_be_ended(console: Browser, world: World) -> None:
    call = running_of(world.person)
    UsageRecord.objects.filter(pk=call.pk).update(expires_at=datetime.now(UTC))
    assert "Died, not settled yet" in shown(console, RUNNING)
    ending = reverse("admin:usage_runningcall_end", args=[call.pk])
    console.post(ending, {"reason": "x"})
    call.refresh_from_db()
    assert call.told_to_end_at is None


def test_one_call_is_ended_with_a_reason(console: Browser, operator: User, world: World) -> None:
    call = running_of(world.person)
    ending = reverse("admin:usage_runningcall_end", args=[call.pk])
    assert "within 15 seconds" in shown(console, ending)
    refused = console.post(ending, {"reason": ""})
    assert list(refused.context["form"].errors) == ["reason"]
    done = console.post(ending, {"reason": "Loops."}, follow=True)
    assert "1 call will end within 15 seconds." in done.content.decode()
    call.refresh_from_db()
    assert call.told_to_end_at is not None
    event = AuditEvent.objects.get(action="user:model_call_ended")
    assert (event.actor, event.target_id) == (operator.email, str(world.person.pk))
    assert ">ending<" in "".join(shown(console, act(world.person, "change")).split())


def test_several_calls_are_ended_at_once(console: Browser, world: World) -> None:
    calls = [running_of(person) for person in world.people[:3]]
    chosen = {"action": "end", "_selected_action": [call.pk for call in calls]}
    assert "3 selected" in console.post(RUNNING, chosen).content.decode()
    several = reverse("admin:usage_runningcall_end_several")
    done = console.post(
        several, {"target": [call.pk for call in calls], "reason": "Loops."}, follow=True
    )
    assert "3 calls will end within 15 seconds." in done.content.decode()
    assert UsageRecord.objects.filter(told_to_end_at__isnull=False).count() == 3


def test_a_persons_calls_are_stopped_and_restarted_from_their_page(
    console: Browser, operator: User, world: World
) -> None:
    person = world.person
    page = shown(console, act(person, "change"))
    assert act(person, "stop_calls") in page
    assert act(person, "restart_calls") not in page
    done = console.post(
        act(person, "stop_calls"), {"reason": "Runs wild.", "ends_at": ""}, follow=True
    )
    assert "can no longer call models. 1 call will end within 15 seconds." in done.content.decode()
    assert Stop.objects.get(user=person).ends_at is None
    page = shown(console, act(person, "change"))
    assert "Stopped since" in page
    assert "Runs wild." in page
    assert act(person, "stop_calls") not in page

    console.post(act(person, "restart_calls"), {"reason": "All good."})
    assert not Stop.objects.exists()
    actors = AuditEvent.objects.filter(action__startswith="user:model_calls_")
    assert {event.actor for event in actors} == {operator.email}
    assert actors.count() == 2
    for address in (act(person, "change"), reverse("admin:accounts_auditevent_changelist")):
        activity = strip_tags(shown(console, address))
        assert "Stopped until an operator restarts them." in activity
        assert re.search(r"Restarted; had been stopped since [\w: ]+\.", activity)
        assert "model calls stopped" not in activity


def test_a_stop_may_have_an_end_and_requires_a_reason(console: Browser, world: World) -> None:
    address = act(world.person, "stop_calls")
    for given, field in (
        ({"reason": "", "ends_at": ""}, "reason"),
        ({"reason": "x", "ends_at": "2020-01-01T00:00"}, "ends_at"),
    ):
        assert list(console.post(address, given).context["form"].errors) == [field]
    console.post(address, {"reason": "x", "ends_at": "2100-01-01T00:00"})
    assert Stop.objects.get().ends_at == datetime(2100, 1, 1, tzinfo=UTC)
    assert "until" in shown(console, act(world.person, "change"))


def test_several_people_are_stopped_at_once(console: Browser, world: World) -> None:
    several = reverse("admin:accounts_user_stop_calls_several")
    targets = [person.pk for person in world.people[:3]]
    done = console.post(several, {"target": targets, "reason": "x", "ends_at": ""}, follow=True)
    assert "3 calls will end within 15 seconds." in done.content.decode()
    assert Stop.objects.count() == 3


def test_operators_without_a_client_have_no_calls_to_stop(console: Browser, operator: User) -> None:
    assert act(operator, "stop_calls") not in shown(console, act(operator, "change"))


def test_a_clients_page_leads_to_each_of_its_people_and_calls(
    console: Browser, world: World
) -> None:
    page = reverse("admin:accounts_client_change", args=[world.client.pk])
    text = shown(console, page)
    call = running_of(world.person)
    assert act(world.person, "stop_calls") in text
    assert reverse("admin:usage_runningcall_end", args=[call.pk]) in text
    console.post(act(world.person, "stop_calls"), {"reason": "x", "ends_at": ""})
    assert act(world.person, "restart_calls") in shown(console, page)


def test_an_extra_allowance_is_granted_seen_and_withdrawn(console: Browser, world: World) -> None:
    person = world.people[5]
    page = shown(console, act(person, "change"))
    address = reverse("admin:usage_override_add")
    assert f"{address}?user={person.pk}&amp;on_top=yes" in page
    asked = console.get(f"{address}?user={person.pk}&on_top=yes")
    assert asked.context["form"].initial["on_top"] == "yes"
    for said in ("<legend>Type</legend>", "Replaces the plan", "Adds to it"):
        assert said in asked.content.decode()
    ends_at = asked.context["form"].initial["ends_at"]
    given = {
        "user": person.pk,
        "on_top": "yes",
        "monthly_input_tokens": "",
        "monthly_output_tokens": "25000",
        "daily_tokens": "",
        "ends_at": f"{ends_at:%Y-%m-%dT%H:%M}",
        "reason": "A large report.",
    }
    done = console.post(address, given, follow=True)
    assert "The extra allowance for" in done.content.decode()
    override = Override.objects.get(user=person)
    assert (override.is_extra, override.monthly_output_tokens) == (True, 25_000)
    page = shown(console, act(person, "change"))
    assert "Extra allowance" in page
    assert "+25,000 output" in page
    assert "125,000" in page

    beyond = {**given, "ends_at": f"{ends_at + timedelta(days=1):%Y-%m-%dT%H:%M}"}
    assert list(console.post(address, beyond).context["form"].errors) == ["ends_at"]

    console.post(reverse("admin:usage_override_end", args=[override.pk]), {"reason": "Enough."})
    page = shown(console, act(person, "change"))
    assert "125,000" not in page
    assert AuditEvent.objects.filter(action="override:ended").exists()


def test_a_charge_is_lowered_on_the_page_of_its_call(console: Browser, world: World) -> None:
    call = UsageRecord.objects.get(user=world.person, state="settled")
    page = reverse("admin:usage_usagerecord_change", args=[call.pk])
    address = reverse("admin:usage_usagerecord_lower", args=[call.pk])
    assert address in console.get(page).content.decode()
    refused = console.post(address, {"input_tokens": "401", "output_tokens": "9", "reason": "x"})
    assert list(refused.context["form"].errors) == ["input_tokens"]
    console.post(address, {"input_tokens": "40", "output_tokens": "9", "reason": "Invoice."})
    call.refresh_from_db()
    assert (call.input_tokens, call.output_tokens) == (40, 9)
    assert "400 in, 200 out" in console.get(page).content.decode()


def test_support_looks_at_a_charge_and_cannot_lower_it(stranger: Browser, world: World) -> None:
    helper = User.objects.create_user("helper@shell.test", is_staff=True)
    helper.put_roles({Role.SUPPORT})
    stranger.force_login(helper)
    call = UsageRecord.objects.get(user=world.person, state="settled")
    address = reverse("admin:usage_usagerecord_lower", args=[call.pk])
    assert stranger.get(address).status_code == 403
    page = reverse("admin:usage_usagerecord_change", args=[call.pk])
    assert address not in stranger.get(page).content.decode()


def test_a_calls_page_lists_its_earlier_attempts(console: Browser, world: World) -> None:
    call = UsageRecord.objects.get(user=world.person, state="settled")
    at = call.opened_at
    abandoned = {
        "provider": "first-choice",
        "prices": [None, None, None, None],
        "input": 11,
        "output": 5,
        "cost": 1_500,
        "is_reported": False,
        "asked_at": at.isoformat(),
        "abandoned_at": (at + timedelta(seconds=2)).isoformat(),
    }
    UsageRecord.objects.filter(pk=call.pk).update(
        abandoned=[abandoned],
        provider="second-choice",
        request_id="their-request-1",
        first_byte_at=at + timedelta(seconds=3),
        settled_at=at + timedelta(seconds=8),
        reasoning_tokens=30,
        end="client_gone",
        source="counted",
    )
    text = shown(console, reverse("admin:usage_usagerecord_change", args=[call.pk]))
    steps = [
        "Requested",
        "Admitted",
        "Sent to first-choice",
        "first-choice <b>broke off</b> after 2.00 s",
        "Failed over to second-choice",
        "First byte",
        "Disconnected",
        "Settled",
    ]
    places = [text.index(f"<span>{step}</span>") for step in steps]
    assert places == sorted(places)
    for said in (
        'data-copy="their-request-1"',
        act(world.person, "change"),
        "Up to 11 in and 5 out ($0.001500) are billed to the client, not to the person’s cap.",
        f"Charged {call.input_tokens + call.output_tokens:,} tokens.",
        " out released.",
        "Counted during delivery.",
        "first-choice failed, second-choice answered",
        "1.00 s after it was sent",
        "took <b>8.00 s</b>",
        "of which reasoning",
        "first-choice failed after 2.00 s, waiting 1.00 s, answering 5.00 s",
    ):
        assert said in text, said


def test_a_running_call_is_shown_with_its_current_state(console: Browser, world: World) -> None:
    call = running_of(world.person)
    UsageRecord.objects.filter(pk=call.pk).update(
        checkpoint_at=call.opened_at, checkpoint_input=7, checkpoint_output=1_234
    )
    text = shown(console, reverse("admin:usage_runningcall_change", args=[call.pk]))
    for said in (
        "running for <b>",
        "7 in and 1,234 out at the last report",
        "fixed when it settles",
    ):
        assert said in text, said
    assert "Settled" not in text


def test_calls_are_listed_by_state(console: Browser, world: World) -> None:
    listed = reverse("admin:usage_usagerecord_changelist")
    UsageRecord.objects.filter(user=world.people[1], state="settled").update(end="timeout")
    text = shown(console, f"{listed}?is=timeout")
    assert "chip-stopped" in text
    assert "Timed out" in text
    assert console.get(f"{listed}?is=open").context["cl"].result_count == len(world.people)
    assert console.get(f"{listed}?end__exact=timeout").context["cl"].result_count == 1
