"""A call's page: its attempts, why it failed, its times, its shell and labels."""

import re
from datetime import timedelta

import pytest
from django.urls import reverse

from accounts.models import Session
from config.console.template_tags import lasting
from tests.conftest import Browser
from tests.console.conftest import World
from tests.console.test_calls import running_of, shown
from usage.models import UsageRecord

pytestmark = pytest.mark.django_db
REFUSED = {
    "provider": "first-choice",
    "model": "m-large",
    "what": "refused",
    "status": 429,
    "words": "rate limit reached",
}
TOLD = {"code": "provider_unavailable", "status": 503, "detail": "Please try again shortly."}


def settled(call: UsageRecord, *attempts: dict[str, object], **columns: object) -> None:
    """Settles a call 8.25 s after its admission, with failed attempts of 420 ms each."""
    at = call.opened_at
    entries = [
        {
            **each,
            "asked_at": (at + number * timedelta(seconds=1)).isoformat(),
            "ended_at": (
                at + number * timedelta(seconds=1) + timedelta(milliseconds=420)
            ).isoformat(),
        }
        for number, each in enumerate(attempts)
    ]
    failures = {"attempts": entries, "left_out": 0, "problem": None, **columns.pop("failures", {})}  # type: ignore[dict-item]
    UsageRecord.objects.filter(pk=call.pk).update(
        failures=failures, settled_at=at + timedelta(seconds=8.25), **columns
    )


def test_a_refused_attempt_is_shown_with_status_message_and_time(
    console: Browser, world: World
) -> None:
    call = UsageRecord.objects.get(user=world.person, state="settled")
    at = call.opened_at
    settled(
        call,
        REFUSED,
        provider="second-choice",
        streamed=True,
        output_tokens=100,
        first_byte_at=at + timedelta(seconds=0.8),
        first_output_at=at + timedelta(seconds=3.25),
        labels={"user": "quote-assistant", "metadata": {"team": "sales"}},
    )
    text = shown(console, reverse("admin:usage_usagerecord_change", args=[call.pk]))
    steps = [
        "Sent to first-choice",
        "first-choice <b>answered 429</b> after 420 ms",
        "Failed over to second-choice",
        "First byte",
        "First output",
        "Done",
    ]
    places = [text.index(f"<span>{step}</span>") for step in steps]
    assert places == sorted(places)
    for said in (
        "m-large",
        "Rate limit reached. Not charged.",
        "first-choice failed, second-choice answered",
        "first-choice failed after 420 ms, waiting 2.83 s, answering 5.00 s",
        "380 ms after it was sent",
        "yes, 20 tokens/s",
        '<span class="quiet">user</span> quote-assistant',
        '<span class="quiet">team</span> sales',
    ):
        assert said in text, said


def test_a_failed_call_has_its_cause_and_what_its_caller_got(
    console: Browser, world: World
) -> None:
    call = UsageRecord.objects.get(user=world.person, state="settled")
    settled(
        call,
        REFUSED,
        end="provider_failed",
        error_code="provider_unavailable",
        provider="first-choice",
        output_tokens=0,
        failures={"problem": TOLD},
    )
    page = reverse("admin:usage_usagerecord_change", args=[call.pk])
    text = shown(console, page)
    for said in (
        "first-choice answered 429: rate limit reached",
        "The caller got <code>503 provider_unavailable</code>: Please try again shortly.",
    ):
        assert said in text, said
    assert "0 tokens out" not in text
    # Nobody was asked after it.
    assert text.count("Sent to first-choice") == 1
    assert "Failed over" not in text
    explained = shown(console, reverse("admin:accounts_user_explain", args=[world.person.pk]))
    assert "first-choice answered 429: rate limit reached" in explained
    assert page in explained


def test_an_answer_that_broke_off_began_before_it_did(console: Browser, world: World) -> None:
    call = UsageRecord.objects.get(user=world.person, state="settled")
    broken = {**REFUSED, "what": "broken", "status": None, "words": "broke (RemoteDisconnected)"}
    begun = call.opened_at + timedelta(seconds=0.1)
    settled(
        call,
        broken,
        end="provider_failed",
        provider="first-choice",
        first_byte_at=begun,
        first_output_at=begun,
        failures={"problem": TOLD},
    )
    text = shown(console, reverse("admin:usage_usagerecord_change", args=[call.pk]))
    steps = ["Sent to first-choice", "First output", "first-choice <b>broke off", "Failed"]
    places = [text.index(f"<span>{step}") for step in steps]
    assert places == sorted(places)
    assert "It closed the connection." in text


def test_a_failed_call_of_an_earlier_release_shows_an_unknown_cause(
    console: Browser, world: World
) -> None:
    call = UsageRecord.objects.get(user=world.person, state="settled")
    UsageRecord.objects.filter(pk=call.pk).update(end="provider_failed", output_tokens=0)
    text = shown(console, reverse("admin:usage_usagerecord_change", args=[call.pk]))
    assert "The record does not say why." in text
    assert "0 tokens out" not in text


def test_attempts_that_were_left_out_are_counted(console: Browser, world: World) -> None:
    call = UsageRecord.objects.get(user=world.person, state="settled")
    settled(call, REFUSED, REFUSED, provider="second-choice", failures={"left_out": 3})
    text = shown(console, reverse("admin:usage_usagerecord_change", args=[call.pk]))
    assert "3 more attempts failed" in text
    assert "2 attempts failed, second-choice" in text


def test_a_charge_is_lowered_from_the_menu(console: Browser, world: World) -> None:
    call = UsageRecord.objects.get(user=world.person, state="settled")
    text = shown(console, reverse("admin:usage_usagerecord_change", args=[call.pk]))
    address = reverse("admin:usage_usagerecord_lower", args=[call.pk])
    assert f'<a href="{address}" class="grave">' in text
    running = running_of(world.person)
    ending = reverse("admin:usage_runningcall_end", args=[running.pk])
    page = shown(console, reverse("admin:usage_runningcall_change", args=[running.pk]))
    assert re.search(rf'<a href="{ending}" class="button ', page)


def test_a_calls_shell_is_that_of_its_session(console: Browser, world: World) -> None:
    call = UsageRecord.objects.get(user=world.person, state="settled")
    session = Session.objects.filter(user=world.person)[0]
    Session.objects.filter(pk=session.pk).update(agent="Shell/4.8.2 (Windows 11)")
    UsageRecord.objects.filter(pk=call.pk).update(session_id=session.pk)
    text = shown(console, reverse("admin:usage_usagerecord_change", args=[call.pk]))
    page = reverse("admin:accounts_session_change", args=[session.pk])
    assert f'<a href="{page}">Shell 4.8.2 on Windows 11</a>' in text


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (None, "–"),
        (0, "0 ms"),
        (0.0001, "under 1 ms"),
        (0.0006, "1 ms"),
        (0.42, "420 ms"),
        (0.9994, "999 ms"),
        (0.9996, "1.00 s"),
        (2.614, "2.61 s"),
        (59.994, "59.99 s"),
        (59.996, "1 min 0 s"),
        (312.4, "5 min 12 s"),
        (7_201, "120 min 1 s"),
    ],
)
def test_a_duration_is_never_zero_seconds(seconds: float | None, told: str) -> None:
    assert lasting(seconds) == told
