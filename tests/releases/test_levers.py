"""Notices to shells: a client's own, else the service's, and the refusals of those that shells could not follow."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.urls import reverse
from rest_framework.test import APIClient

from accounts.audit import Actor
from accounts.models import AuditEvent, Client, RefreshToken, Role, Session, User
from accounts.sessions.refresh_tokens import RefreshSecret
from config.composition.attention.listing import items
from config.platform.db.connections import database_now
from config.platform.problems.problem import InvalidRequest
from licensing.licences import create_client
from licensing.models import Licence, Plan, ServiceNotice
from licensing.notices import is_below, set_message
from releases import channel_control, levers
from releases.models import ShellChannel, ShellRelease
from tests.conftest import Browser
from tests.console.test_roles import operator_with
from tests.races import race
from tests.releases.conftest import Pipeline
from tests.releases.test_channel_control import back_to

pytestmark = pytest.mark.django_db
STATUS = "/v1/license/status"
OWN = {"status", "plan", "entitlements"}


@pytest.fixture
def how(by: Actor, now: Any) -> dict[str, Any]:
    return {"reason": "It loses notes.", "by": by, "now": now}


@pytest.fixture
def releases(pipeline: Pipeline) -> Pipeline:
    for version in ("1.2.0", "1.3.0", "1.4.0"):
        pipeline.publish(pipeline.release(version))
    return pipeline


@pytest.fixture
def licence(client_of_user: Client) -> Licence:
    return client_of_user.licence


@pytest.fixture
def client_of_user(user: Any) -> Client:
    return user.client  # type: ignore[no-any-return]


def told(shell: APIClient) -> dict[str, Any]:
    """The members of the licence status beside its own."""
    answer = shell.get(STATUS).json()
    return {name: value for name, value in answer.items() if name not in OWN}


def refused(pointer: str, act: Any, **inputs: Any) -> str:
    with pytest.raises(InvalidRequest) as refusal:
        act(**inputs)
    (fault,) = refusal.value.errors
    assert fault.pointer == pointer
    return fault.detail


def test_a_status_says_nothing_more_where_nothing_is_set(signed_in: APIClient) -> None:
    assert told(signed_in) == {}


def test_each_is_the_clients_own_or_else_the_services(
    signed_in: APIClient, licence: Licence, releases: Pipeline, how: dict[str, Any], now: Any
) -> None:
    levers.set_minimum_version(licence_id=None, minimum="1.2.0", **how)
    levers.set_shell(licence_id=None, channel="stable", version="1.3.0", **how)
    message = {"level": "info", "until": now + timedelta(days=400)}
    set_message(licence_id=None, text="Maintenance on\n Sunday.", **message, **how)
    of_all = told(signed_in)
    assert of_all.pop("message") == {
        "id": str(ServiceNotice.objects.get().message_id),
        "level": "info",
        "text": "Maintenance on Sunday.",
        "until": message["until"].strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    assert of_all == {
        "minimum_version": "1.2.0",
        "shell": {"channel": "stable", "version": "1.3.0"},
    }
    levers.set_minimum_version(licence_id=licence.pk, minimum="1.3.0", **how)
    levers.set_shell(licence_id=licence.pk, channel="", version="1.4.0", **how)
    set_message(licence_id=licence.pk, text="Call us.", level="critical", until=None, **how)
    own = told(signed_in)
    assert own["minimum_version"] == "1.3.0"
    assert own["shell"] == {"version": "1.4.0"}
    assert {**own["message"], "id": ""} == {"id": "", "level": "critical", "text": "Call us."}
    levers.set_minimum_version(licence_id=licence.pk, minimum="", **how)
    levers.set_shell(licence_id=licence.pk, channel="", version="", **how)
    set_message(licence_id=licence.pk, text="", level="info", until=None, **how)
    again = told(signed_in)
    assert again.pop("message")["text"] == "Maintenance on Sunday."
    assert again == of_all


def test_each_change_has_another_etag_and_a_message_that_is_over_is_not_told(
    signed_in: APIClient, licence: Licence, releases: Pipeline, how: dict[str, Any], now: Any
) -> None:
    tags = [signed_in.get(STATUS)["ETag"]]
    levers.set_minimum_version(licence_id=licence.pk, minimum="1.4.0", **how)
    tags.append(signed_in.get(STATUS)["ETag"])
    set_message(licence_id=licence.pk, text="Hello.", level="info", until=None, **how)
    tags.append(signed_in.get(STATUS)["ETag"])
    first = told(signed_in)["message"]["id"]
    set_message(licence_id=licence.pk, text="Hello!", level="info", until=None, **how)
    tags.append(signed_in.get(STATUS)["ETag"])
    assert len({*tags}) == len(tags)
    again = told(signed_in)["message"]["id"]
    assert again != first
    # The same text is the same message, whatever else changes.
    set_message(licence_id=licence.pk, text="Hello!", level="warning", until=None, **how)
    assert told(signed_in)["message"] == {"id": again, "level": "warning", "text": "Hello!"}
    set_message(licence_id=None, text="Of all.", level="info", until=None, **how)
    Licence.objects.update(message_until=now - timedelta(days=1_000))
    assert told(signed_in)["message"]["text"] == "Of all."


def test_a_message_ends_at_its_instant_by_the_databases_clock(
    signed_in: APIClient, licence: Licence, how: dict[str, Any]
) -> None:
    set_message(licence_id=licence.pk, text="Its own.", level="info", until=None, **how)
    set_message(licence_id=None, text="Of all.", level="info", until=None, **how)
    # A transaction has one time, and this test is one.
    end = database_now()
    texts, tags = [], []
    for until in (end + timedelta(microseconds=1), end, end - timedelta(microseconds=1)):
        Licence.objects.update(message_until=until)
        texts.append(told(signed_in)["message"]["text"])
        tags.append(signed_in.get(STATUS)["ETag"])
    assert texts == ["Its own.", "Of all.", "Of all."]
    assert (tags[0] != tags[1], tags[1]) == (True, tags[2])


@pytest.mark.parametrize(
    "until", ["2036-02-29T23:59:59Z", "2036-12-31T23:59:00Z", "9999-12-31T23:59:59Z"]
)
def test_an_end_is_told_in_utc_to_the_second(
    signed_in: APIClient, licence: Licence, how: dict[str, Any], until: str
) -> None:
    given = {"level": "info", "until": datetime.fromisoformat(until)}
    set_message(licence_id=licence.pk, text="Hello.", **given, **how)
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL TIME ZONE 'Pacific/Auckland'")
    assert told(signed_in)["message"]["until"] == until


@pytest.mark.parametrize(
    ("version", "is_locked"),
    [
        ("4.1.0-beta.9", True),
        ("4.1.0-beta.10", True),
        ("4.1.0", False),
        ("4.1.0+build.7", False),
        ("4.1.1-rc.1", False),
        ("4.0.99", True),
    ],
)
def test_a_beta_of_the_minimum_is_below_it(version: str, is_locked: bool) -> None:
    """As a shell compares (TheAngryRaven/DovesDataViewer#420)."""
    assert is_below(version, "4.1.0") is is_locked


def test_a_closed_message_stays_the_same_until_its_text_changes(
    signed_in: APIClient, licence: Licence, how: dict[str, Any], now: datetime
) -> None:
    """Otherwise whoever closed it sees it again (zesty-io/manager-ui#2347)."""

    def shown(text: str, **more: Any) -> str:
        given = {"level": "info", "until": None, **more}
        set_message(licence_id=licence.pk, text=text, **given, **how)
        return told(signed_in)["message"]["id"]  # type: ignore[no-any-return]

    first = shown("Hello.")
    later = now + timedelta(days=1_000)
    assert {
        shown("Hello."),
        shown(" Hello.\n"),
        shown("Hello.", level="critical", until=later),
    } == {first}
    assert shown("Hello!") != first
    set_message(licence_id=licence.pk, text="", level="info", until=None, **how)
    assert shown("Hello.") != first


def test_a_status_is_one_query_with_all_of_it(
    signed_in: APIClient, releases: Pipeline, how: dict[str, Any], django_assert_num_queries: Any
) -> None:
    levers.set_minimum_version(licence_id=None, minimum="1.2.0", **how)
    signed_in.get(STATUS)
    with django_assert_num_queries(1):
        assert told(signed_in) == {"minimum_version": "1.2.0"}


@pytest.mark.parametrize("minimum", ["1.4.1", "2.0.0", "1.5.0-rc.1"])
def test_a_minimum_that_nothing_reachable_satisfies_is_refused(
    licence: Licence, releases: Pipeline, how: dict[str, Any], minimum: str
) -> None:
    for licence_id in (licence.pk, None):
        sentence = refused(
            "/minimum", levers.set_minimum_version, licence_id=licence_id, minimum=minimum, **how
        )
        assert "stable offers 1.4.0" in sentence
    assert not AuditEvent.objects.filter(action__endswith="minimum_set").exists()


def test_a_client_that_gives_up_its_own_minimum_can_reach_that_of_all(
    releases: Pipeline, licence: Licence, how: dict[str, Any]
) -> None:
    releases.publish(releases.release("1.0.0", "beta"), channel="beta")
    own = {"licence_id": licence.pk}
    levers.set_minimum_version(**own, minimum="1.0.0", **how)
    levers.set_shell(**own, channel="beta", version="", **how)
    levers.set_minimum_version(licence_id=None, minimum="1.4.0", **how)
    sentence = refused("/minimum", levers.set_minimum_version, **own, minimum="", **how)
    assert "beta offers 1.0.0: shells below 1.4.0" in sentence
    levers.set_shell(**own, channel="", version="1.3.0", **how)
    levers.set_minimum_version(**own, minimum="", **how)


@pytest.mark.parametrize("minimum", ["1.4", "v1.4.0", "newest", "1.4.0 "])
def test_a_minimum_is_a_version(
    licence: Licence, releases: Pipeline, how: dict[str, Any], minimum: str
) -> None:
    refused("/minimum", levers.set_minimum_version, licence_id=licence.pk, minimum=minimum, **how)


def test_a_release_for_a_share_is_none_for_all(
    licence: Licence, releases: Pipeline, how: dict[str, Any]
) -> None:
    releases.publish(releases.release("1.5.0"), share=50)
    given = {"licence_id": licence.pk, "minimum": "1.5.0"}
    refused("/minimum", levers.set_minimum_version, **given, **how)
    channel_control.raise_share(channel="stable", share=100, **how)
    levers.set_minimum_version(**given, **how)


def test_a_halted_channel_satisfies_no_minimum(
    licence: Licence, releases: Pipeline, how: dict[str, Any]
) -> None:
    ShellChannel.objects.update(halted_at=how["now"])
    given = {"licence_id": licence.pk, "minimum": "1.2.0"}
    assert "nothing" in refused("/minimum", levers.set_minimum_version, **given, **how)


def test_a_clients_channel_and_pin_decide_what_it_can_reach(
    licence: Licence, releases: Pipeline, how: dict[str, Any], plan: Plan
) -> None:
    releases.publish(releases.release("2.0.0", "beta"), channel="beta")
    levers.set_shell(licence_id=licence.pk, channel="beta", version="", **how)
    levers.set_minimum_version(licence_id=licence.pk, minimum="2.0.0", **how)
    # The minimum of all shells has to be reachable on every client's channel without a minimum of its own.
    other = create_client(name="Other", plan=plan, by=how["by"], now=how["now"])
    refused("/minimum", levers.set_minimum_version, licence_id=None, minimum="2.0.0", **how)
    levers.set_minimum_version(licence_id=None, minimum="1.4.0", **how)
    pinned = {"licence_id": other.licence.pk, "channel": "", "version": "1.3.0"}
    assert "1.4.0" in refused("/version", levers.set_shell, **pinned, **how)
    levers.set_minimum_version(licence_id=None, minimum="", **how)
    levers.set_shell(**pinned, **how)
    sentence = refused(
        "/minimum",
        levers.set_minimum_version,
        licence_id=other.licence.pk,
        minimum="1.4.0",
        **how,
    )
    assert "The pin of Other" in sentence


def test_a_minimum_of_all_beats_an_older_pin_of_a_client(
    signed_in: APIClient, licence: Licence, releases: Pipeline, how: dict[str, Any]
) -> None:
    levers.set_shell(licence_id=licence.pk, channel="stable", version="1.3.0", **how)
    levers.set_minimum_version(licence_id=None, minimum="1.4.0", **how)
    assert told(signed_in) == {"minimum_version": "1.4.0", "shell": {"channel": "stable"}}


@pytest.fixture
def on_beta(licence: Licence, releases: Pipeline, how: dict[str, Any]) -> Licence:
    """A client on another channel, which offers more than stable."""
    releases.publish(releases.release("2.0.0", "beta"), channel="beta")
    levers.set_shell(licence_id=licence.pk, channel="beta", version="", **how)
    return licence


def test_a_source_of_its_own_is_never_mixed_with_that_of_all_shells(
    signed_in: APIClient, on_beta: Licence, how: dict[str, Any]
) -> None:
    levers.set_shell(licence_id=None, channel="beta", version="", **how)
    levers.set_shell(licence_id=on_beta.pk, channel="", version="1.4.0", **how)
    assert told(signed_in) == {"shell": {"version": "1.4.0"}}
    given = {"licence_id": on_beta.pk, "minimum": "1.5.0"}
    assert "stable offers 1.4.0" in refused("/minimum", levers.set_minimum_version, **given, **how)
    given["licence_id"] = None
    assert "stable offers 1.4.0" in refused("/minimum", levers.set_minimum_version, **given, **how)


def test_a_channel_is_not_taken_away_from_under_a_minimum(
    on_beta: Licence, how: dict[str, Any]
) -> None:
    levers.set_minimum_version(licence_id=on_beta.pk, minimum="2.0.0", **how)
    none = {"licence_id": on_beta.pk, "channel": "", "version": ""}
    assert "stable would offer 1.4.0" in refused("/channel", levers.set_shell, **none, **how)
    levers.set_minimum_version(licence_id=on_beta.pk, minimum="", **how)
    levers.set_shell(**none, **how)


def test_the_channel_of_all_shells_serves_the_minimum_of_each_client(
    on_beta: Licence, how: dict[str, Any], plan: Plan
) -> None:
    levers.set_shell(licence_id=None, channel="beta", version="", **how)
    levers.set_shell(licence_id=on_beta.pk, channel="", version="", **how)
    levers.set_minimum_version(licence_id=on_beta.pk, minimum="2.0.0", **how)
    stable = {"licence_id": None, "channel": "stable", "version": ""}
    sentence = refused("/channel", levers.set_shell, **stable, **how)
    assert f"The minimum version of {on_beta.client} is 2.0.0; stable would offer" in sentence
    # A client with a source of its own does not mind.
    levers.set_shell(licence_id=on_beta.pk, channel="beta", version="", **how)
    levers.set_shell(**stable, **how)


def test_a_minimum_of_all_above_their_own_pin_is_refused(
    releases: Pipeline, licence: Licence, how: dict[str, Any]
) -> None:
    levers.set_shell(licence_id=None, channel="", version="1.3.0", **how)
    for whose in (None, licence.pk):
        given = {"licence_id": whose, "minimum": "1.4.0"}
        sentence = refused("/minimum", levers.set_minimum_version, **given, **how)
        assert "The pin of all shells offers 1.3.0" in sentence


def test_a_rollback_below_the_minimum_of_all_channels_warns_the_operator(
    on_beta: Licence, how: dict[str, Any]
) -> None:
    levers.set_minimum_version(licence_id=None, minimum="1.4.0", **how)
    assert levers.minimums_above("beta", "1.0.0") == [(str(on_beta.client), "1.4.0")]
    assert levers.minimums_above("beta", "1.4.0") == []


@pytest.mark.parametrize(
    ("channel", "version", "pointer"),
    [
        ("nightly", "", "/channel"),
        ("", "9.9.9", "/version"),
        ("stable", "1.2", "/version"),
        ("beta", "1.2.0", "/channel"),
    ],
)
def test_a_pin_that_is_offered_nowhere_is_refused(
    licence: Licence,
    releases: Pipeline,
    how: dict[str, Any],
    channel: str,
    version: str,
    pointer: str,
) -> None:
    given = {"licence_id": licence.pk, "channel": channel, "version": version}
    refused(pointer, levers.set_shell, **given, **how)


@pytest.mark.parametrize(
    "text",
    [
        "a\x00b",
        "\x1b[31mred",
        "a\u202eb",
        "a\u2066b\u2069",
        "a\u200bb",
        "a\u0085\x07b",
        "\ue000",
        "x" * 501,
    ],
)
def test_a_message_is_plain_text(licence: Licence, how: dict[str, Any], text: str) -> None:
    given = {"licence_id": licence.pk, "text": text, "level": "info", "until": None}
    refused("/text", set_message, **given, **how)


@pytest.mark.parametrize(
    "text",
    ["می\u200cخواهم", "👩\u200d💻 is back", "שלום, world", "<b>1 < 2</b> & “more”", "é" * 500],
)
def test_a_message_has_the_letters_of_every_language(
    signed_in: APIClient, licence: Licence, how: dict[str, Any], text: str
) -> None:
    set_message(licence_id=licence.pk, text=f" {text}\n", level="info", until=None, **how)
    assert told(signed_in)["message"]["text"] == text


def test_a_message_has_a_known_level(licence: Licence, how: dict[str, Any]) -> None:
    given = {"licence_id": licence.pk, "text": "Hello.", "level": "loud", "until": None}
    refused("/level", set_message, **given, **how)


def test_a_message_that_is_over_already_and_a_change_without_a_reason_are_refused(
    licence: Licence, how: dict[str, Any]
) -> None:
    given = {"licence_id": licence.pk, "text": "x", "level": "info", "until": how["now"]}
    refused("/until", set_message, **given, **how)
    refused("/reason", set_message, **{**given, "until": None}, **{**how, "reason": " "})


def test_minimums_above_the_offered_version_are_listed(
    licence: Licence, releases: Pipeline, how: dict[str, Any]
) -> None:
    levers.set_minimum_version(licence_id=licence.pk, minimum="1.4.0", **how)
    levers.set_minimum_version(licence_id=None, minimum="1.3.0", **how)
    named = [(str(licence.client), "1.4.0"), ("all shells", "1.3.0")]
    assert sorted(levers.minimums_above("stable", None)) == sorted(named)
    assert levers.minimums_above("stable", "1.3.0") == named[:1]
    assert levers.minimums_above("stable", "1.4.0") == levers.minimums_above("beta", None) == []
    assert back_to("1.2.0")


def test_a_channel_that_comes_to_offer_less_than_a_minimum_needs_attention(
    releases: Pipeline, licence: Licence, how: dict[str, Any], now: datetime
) -> None:
    """However it came about: the update screen of a shell would never end (mozilla-mobile/mozilla-vpn-client#1253)."""

    def found() -> list[str]:
        return [str(each) for each in items(now=now) if each.kind.name == "below_minimum"]

    assert found() == []
    levers.set_minimum_version(licence_id=licence.pk, minimum="1.4.0", **how)
    assert found() == []
    ends = "Older shells show their update screen and find no update."
    older = [
        each for each in channel_control.earlier("stable") if str(each.release.version) == "1.3.0"
    ]
    channel_control.roll_back(channel="stable", publication_id=older[0].pk, **how)
    below = f"stable offers 1.3.0, below a minimum version: 1.4.0 for {licence.client}. {ends}"
    assert found() == [below]
    channel_control.halt(channel="stable", **how)
    assert found() == [below.replace("1.3.0", "nothing")]
    channel_control.resume(channel="stable", **how)
    releases.publish(releases.release("1.5.0"), share=50)
    assert found() == [below]
    channel_control.raise_share(channel="stable", share=100, **how)
    assert found() == []


@pytest.mark.django_db(transaction=True)
def test_two_levers_at_once_leave_a_minimum_that_can_be_reached(
    on_beta: Licence, how: dict[str, Any]
) -> None:
    def minimum() -> Any:
        return levers.set_minimum_version(licence_id=on_beta.pk, minimum="2.0.0", **how)

    def source() -> Any:
        return levers.set_shell(licence_id=on_beta.pk, channel="", version="", **how)

    ended = race(minimum, source)
    (refusal,) = (each for each in ended if isinstance(each, Exception))
    assert isinstance(refusal, InvalidRequest)
    assert levers.minimums_above("stable", "1.4.0") == []


class TestPages:
    """The acts in the console."""

    def test_a_minimum_is_previewed_and_then_set(
        self, console: Browser, licence: Licence, releases: Pipeline
    ) -> None:
        page = reverse("admin:accounts_client_minimum", args=[licence.client_id])
        entered = {"minimum": "1.4.0", "reason": "It loses notes."}
        shown = console.post(page, entered).content.decode()
        assert "Set the minimum to 1.4.0" in shown
        assert "signed in with a version below 1.4.0" in shown
        assert Licence.objects.get().minimum_version == ""
        console.post(page, {**entered, "seen": "1.4.0"})
        assert Licence.objects.get().minimum_version == "1.4.0"
        event = AuditEvent.objects.get(action="licence:minimum_set")
        assert (event.before, event.after) == ({}, {"minimum_version": "1.4.0"})
        assert event.target_id == str(licence.client_id)
        halting = reverse("admin:releases_shellchannel_halt", args=["stable"])
        assert "is 1.4.0.</b> Older shells" in console.get(halting).content.decode()

    def test_all_shells_have_a_page(self, console: Browser, releases: Pipeline) -> None:
        ServiceNotice.objects.get_or_create()
        page = reverse("admin:licensing_servicenotice_change", args=["service"])
        assert console.get(page).status_code == 200
        for act, given in {
            "message": {"text": "Hello.", "level": "info"},
            "shell": {"channel": "stable", "version": "1.3.0"},
        }.items():
            address = reverse(f"admin:licensing_servicenotice_{act}", args=["service"])
            assert console.get(address).status_code == 200
            console.post(address, {**given, "reason": "Because."})
        row = ServiceNotice.objects.get()
        assert (row.message_text, row.shell_version) == ("Hello.", "1.3.0")
        assert AuditEvent.objects.filter(target_id="service").count() == 2

    def test_the_preview_counts_the_shells_that_would_be_locked(
        self, console: Browser, user: User, licence: Licence, releases: Pipeline, now: datetime
    ) -> None:
        agents = [
            "Shell/1.3.0 (Windows 11)",
            "Shell/1.3.0",
            "Shell/1.4.0-rc.1",
            "Shell/1.4.0",
            "Firefox/140.0",
        ]
        for agent in agents:
            session = Session.objects.create(
                user=user, agent=agent, started_at=now, last_used_at=now
            )
            RefreshToken.objects.create(
                id=RefreshSecret.new().id, session=session, user=user, token_hash="x", issued_at=now,
                expires_at=now + timedelta(days=30),
            )  # fmt: skip
        Session.objects.create(user=user, agent="Shell/1.0.0", started_at=now, last_used_at=now)
        ServiceNotice.objects.get_or_create()
        entered = {"minimum": "1.4.0", "reason": "It loses notes."}
        of_client = reverse("admin:accounts_client_minimum", args=[licence.client_id])
        of_all = reverse("admin:licensing_servicenotice_minimum", args=["service"])
        for page in (of_client, of_all):
            shown = console.post(page, entered).content.decode()
            assert "3 sessions on a version below 1.4.0." in shown
            rows = re.findall(r'row">(\S+)</th>\s*<td class="number">(\d+)', shown)
            assert rows == [("1.3.0", "2"), ("1.4.0-rc.1", "1")]
        # Nothing to update to for a platform that only an earlier release had.
        assert "have no update" not in shown
        ShellRelease.objects.filter(version="1.2.0").update(
            platforms=["darwin-aarch64", "linux-x86_64-deb"]
        )
        assert (
            "<b>Shells on linux-x86_64 have no update.</b>"
            in console.post(of_client, entered).content.decode()
        )
        # A client with a minimum of its own is none of all shells.
        Licence.objects.update(minimum_version="1.2.0")
        assert "Nobody has signed in" in console.post(of_all, entered).content.decode()

    def test_explain_and_the_clients_page_tell_what_is_set(
        self,
        console: Browser,
        user: Any,
        licence: Licence,
        releases: Pipeline,
        how: dict[str, Any],
        now: datetime,
    ) -> None:
        explain_page = reverse("admin:accounts_user_explain", args=[user.pk])
        assert "tells the shell" not in console.get(explain_page).content.decode()
        levers.set_minimum_version(licence_id=None, minimum="1.2.0", **how)
        levers.set_shell(licence_id=licence.pk, channel="stable", version="1.3.0", **how)
        set_message(licence_id=licence.pk, text="<b>Hi</b>", level="info", until=None, **how)
        shown = console.get(explain_page).content.decode()
        assert "shows only its update screen (set for all shells)." in shown
        assert "It updates from stable, pinned to 1.3.0 (set for Acme)." in shown
        assert "It shows: “&lt;b&gt;Hi&lt;/b&gt;” (info; set for Acme)." in shown
        page = reverse("admin:accounts_client_change", args=[licence.client_id])
        shown = console.get(page).content.decode()
        assert "stable, pinned to 1.3.0" in shown
        assert "&lt;b&gt;Hi&lt;/b&gt;" in shown
        # A pin that a minimum beats, and a message of its own that is over.
        levers.set_minimum_version(licence_id=None, minimum="1.4.0", **how)
        Licence.objects.update(message_until=now - timedelta(days=1000))
        until = {"level": "warning", "until": datetime(9000, 11, 2, 9, 30, tzinfo=UTC)}
        set_message(licence_id=None, text="Hello.", **until, **how)
        shown = console.get(explain_page).content.decode()
        assert "It updates from stable (set for Acme)." in shown
        assert "Its pin to 1.3.0 does not apply: the minimum version is above it." in shown
        end = "(warning, until 2 November 9000 09:30 UTC; set for all shells)"
        assert f"It shows: “Hello.” {end}." in shown

    @pytest.mark.parametrize(
        ("role", "acts"),
        [
            (Role.RELEASE, {"minimum"}),
            (Role.LICENSING, {"shell", "message"}),
            (Role.SUPPORT, set()),
            (Role.AUDITOR, set()),
        ],
    )
    def test_each_act_is_of_its_role(
        self, role: str, acts: set[str], user: Any, client: Any
    ) -> None:
        operator = operator_with(role)
        rights = operator.get_all_permissions()
        held = {
            act
            for act in ("minimum", "shell", "message")
            if f"licensing.servicenotice_{act}" in rights
        }
        assert held == acts
