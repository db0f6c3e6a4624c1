"""Devices of a person: one rule at the sign-in, in every order, also for twenty at once at the last one."""

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from unittest.mock import patch
from uuid import UUID, uuid4

import pytest
from django.db import DatabaseError, connection
from django.test.utils import CaptureQueriesContext
from procrastinate.contrib.django.models import ProcrastinateJob
from rest_framework.test import APIClient

from accounts.audit import Actor
from accounts.models import AuditEvent, Client, RefreshToken, Session, User
from accounts.people.access import disable
from accounts.sessions import sign_in as module
from accounts.sessions.devices import DeviceLimitReached, devices_held, devices_of_client
from accounts.sessions.revocation import end_session, revoke_all
from accounts.sessions.rotation import rotate
from accounts.sessions.sign_in import Device, InvalidCredentials, TokenPair, sign_in
from config.composition.attention.listing import items
from config.platform.problems.problem import NotFound
from licensing.callers import load_caller
from licensing.models import DevicesFull, Licence, Plan
from llmproxy.keys.personal_keys import make_key
from tests.conftest import PASSWORD
from tests.races import race

pytestmark = pytest.mark.usefixtures("signing_key")
RACERS = 20
HOUR = timedelta(hours=1)
OLDEST, REFUSE = DevicesFull.OLDEST, DevicesFull.REFUSE


def limit(user: User, devices: int | None, full: DevicesFull = REFUSE) -> None:
    Licence.objects.filter(client=user.client).update(devices=devices, devices_full=full)


def enter(user: User, device_fp: str, at: datetime, end: UUID | None = None) -> TokenPair:
    device = Device(fingerprint=device_fp, address="192.0.2.7")
    return sign_in(email=user.email, password=PASSWORD, device=device, now=at, end_session=end)


def signed_in(user: User, *names: str, at: datetime) -> list[Session]:
    """Sessions on devices of these names, an hour apart, the last one an hour ago."""
    for number, name in enumerate(names):
        enter(user, name, at - (len(names) - number) * HOUR)
    return list(Session.objects.filter(user=user).order_by("started_at"))


def held(user: User, at: datetime) -> list[str]:
    """The names of the devices that the person is signed in on, in the order of their sign-in."""
    live = Session.objects.filter(user=user).live(at=at)
    return [each.device_fp for each in live.order_by("started_at", "pk")]


def mails() -> list[dict[str, Any]]:
    return [job.args for job in ProcrastinateJob.objects.filter(task_name="mail.send")]


REFUSED = None


@pytest.fixture
def at(now: datetime) -> datetime:
    return now


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("full", "before", "name", "after"),
    [
        # One more device than the limit of two.
        (REFUSE, ["a", "b"], "c", REFUSED),
        (OLDEST, ["a", "b"], "c", ["b", "c"]),
        # The same one again is no further device; its older session lives on.
        (REFUSE, ["a", "b"], "a", ["a", "b", "a"]),
        (OLDEST, ["a", "b"], "b", ["a", "b", "b"]),
        (REFUSE, ["a", "a", "a"], "b", ["a", "a", "a", "b"]),
        (OLDEST, ["a", "b", "a"], "c", ["a", "a", "c"]),
        # All sessions of the device that gives way.
        (OLDEST, ["a", "a", "b"], "c", ["b", "c"]),
        # Without a name each session counts, and the newcomer takes the place of another one without.
        (REFUSE, ["", ""], "", ["", ""]),
        (OLDEST, ["", ""], "", ["", ""]),
        (REFUSE, ["", "b"], "", ["b", ""]),
        (OLDEST, ["b", ""], "", ["b", ""]),
        (REFUSE, ["", ""], "c", REFUSED),
        (OLDEST, ["", "b"], "c", ["b", "c"]),
        (REFUSE, ["a", "b"], "", REFUSED),
        (OLDEST, ["a", "b"], "", ["b", ""]),
        (REFUSE, ["a"], "", ["a", ""]),
        # More than the limit already, because it was lowered.
        (REFUSE, ["a", "b", "c"], "d", REFUSED),
        (REFUSE, ["a", "b", "c"], "a", ["a", "b", "c", "a"]),
        (REFUSE, ["", "", ""], "", ["", "", ""]),
        (OLDEST, ["a", "b", "c", "d"], "e", ["d", "e"]),
        # keycloak/keycloak#14689: sign-ins of somebody far above it lead back to it.
        (OLDEST, [f"device-{number}" for number in range(9)], "e", ["device-8", "e"]),
    ],
)
def test_a_sign_in_at_the_limit_of_two_devices(
    user: User,
    at: datetime,
    full: DevicesFull,
    before: list[str],
    name: str,
    after: list[str] | None,
) -> None:
    signed_in(user, *before, at=at)
    limit(user, 2, full)
    if after is not REFUSED:
        enter(user, name, at)
        assert held(user, at) == after
        return
    with pytest.raises(DeviceLimitReached) as refused:
        enter(user, name, at)
    assert held(user, at) == before
    assert refused.value.members["limit"] == 2
    assert len(refused.value.members["devices"]) == len(devices_held(user, at=at))


@pytest.mark.django_db
def test_any_number_of_devices_without_a_limit(user: User, at: datetime) -> None:
    signed_in(user, *"abcdef", "", "", at=at)
    assert len(devices_held(user, at=at)) == 8


@pytest.mark.django_db
def test_a_refusal_lists_the_devices_and_leaves_nothing_but_its_event(
    user: User, at: datetime
) -> None:
    (first,) = signed_in(user, "desk-7", at=at)
    limit(user, 1)
    before = User.objects.get().last_login, len(mails())
    # From elsewhere: neither a new place nor a failed sign-in.
    device = Device(fingerprint="new", address="203.0.113.9", request_id="req-1")
    for seconds in (0, 20):
        with pytest.raises(DeviceLimitReached) as refused:
            sign_in(
                email=user.email,
                password=PASSWORD,
                device=device,
                now=at + timedelta(seconds=seconds),
            )
    problem = refused.value
    assert (problem.status, problem.code, problem.about) == (
        403,
        "device_limit_reached",
        {"person": user.pk},
    )
    used = first.last_used_at.isoformat().replace("+00:00", "Z")
    assert problem.members == {
        "limit": 1,
        "devices": [{"id": str(first.pk), "device": "desk-7", "last_used_at": used}],
    }
    assert (User.objects.get().last_login, len(mails())) == before
    assert Session.objects.count() == RefreshToken.objects.count() == 1
    assert not ProcrastinateJob.objects.filter(task_name="accounts.record_refusal").exists()
    # One event a minute.
    event = AuditEvent.objects.get(action="session:device_refused")
    assert (event.actor, event.target, event.address) == (user.email, user.email, "203.0.113.9")
    assert (event.request_id, event.after) == ("req-1", {"limit": 1})


@pytest.mark.django_db
def test_wrong_credentials_learn_nothing_of_devices(user: User, at: datetime) -> None:
    (first,) = signed_in(user, "a", at=at)
    limit(user, 1)
    for email, password in ((user.email, "wrong"), ("nobody@acme.test", PASSWORD)):
        with pytest.raises(InvalidCredentials):
            sign_in(
                email=email,
                password=password,
                device=Device(fingerprint="b"),
                end_session=first.pk,
                now=at,
            )
    assert held(user, at) == ["a"]


@pytest.mark.django_db
def test_a_person_gives_up_a_session_for_the_new_one(user: User, at: datetime) -> None:
    _, second = signed_in(user, "a", "b", at=at)
    limit(user, 2)
    enter(user, "c", at, second.pk)
    assert held(user, at) == ["a", "c"]
    second.refresh_from_db()
    assert (second.ended_at, second.ended_by) == (at, Session.Ended.LOGOUT)
    assert not RefreshToken.objects.filter(session=second).unrevoked().exists()
    event = AuditEvent.objects.get(action="session:ended")
    assert (event.actor, event.target_id) == (user.email, str(second.pk))
    assert not mails()


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("devices", "before", "ended", "after"),
    [
        # The device goes with all its sessions, or its place would not be free.
        (2, ["a", "a", "b"], 0, ["b", "new"]),
        (2, ["a", "a", "b"], 1, ["b", "new"]),
        (2, ["", "b"], 0, ["b", "new"]),
        # Nothing else gives way, also above the limit and where there is a free place, or no limit.
        (1, ["a", "b", "c"], 1, ["a", "c", "new"]),
        (5, ["a", "b"], 0, ["b", "new"]),
        (None, ["a", "b"], 0, ["b", "new"]),
    ],
)
@pytest.mark.parametrize("full", DevicesFull)
def test_the_number_of_devices_does_not_rise_where_one_is_given_up(
    user: User,
    at: datetime,
    full: DevicesFull,
    devices: int | None,
    before: list[str],
    ended: int,
    after: list[str],
) -> None:
    sessions = signed_in(user, *before, at=at)
    limit(user, devices, full)
    enter(user, "new", at, sessions[ended].pk)
    assert held(user, at) == after


@pytest.mark.django_db
@pytest.mark.parametrize("which", ["unknown", "another's", "ended", "expired"])
def test_a_session_that_is_not_there_to_be_given_up_changes_nothing(
    user: User, at: datetime, which: str
) -> None:
    first, second = signed_in(user, "a", "b", at=at)
    limit(user, 1)
    other = User.objects.create_user("ben@acme.test", PASSWORD, client=user.client)
    enter(other, "theirs", at)
    theirs = Session.objects.get(user=other)
    end_session(session=first, why=Session.Ended.LOGOUT, by=Actor(name="x"), now=at)
    Session.objects.create(
        id=uuid4(), user=user, device_fp="old", started_at=at, last_used_at=at, expires_at=at
    )
    ids = {
        "unknown": uuid4(),
        "another's": theirs.pk,
        "ended": first.pk,
        "expired": Session.objects.get(device_fp="old").pk,
    }
    events = AuditEvent.objects.count()
    with pytest.raises(NotFound):
        enter(user, "c", at, ids[which])
    assert (held(user, at), held(other, at)) == (["b"], ["theirs"])
    assert AuditEvent.objects.count() == events
    assert second.ended_at is None
    # A right password that somebody else may have tried: the worker writes the event.
    refusals = ProcrastinateJob.objects.filter(task_name="accounts.record_refusal")
    assert [job.args["email"] for job in refusals] == [user.email]


@pytest.mark.django_db
def test_the_person_of_the_device_that_gave_way_is_mailed(user: User, at: datetime) -> None:
    signed_in(user, "desk-7", "laptop", at=at)
    limit(user, 2, OLDEST)
    enter(user, "phone", at)
    (mail,) = mails()
    assert (mail["to"], mail["subject"]) == ([user.email], "One of your devices was signed out")
    for body in (mail["text"], mail["html"]):
        assert "desk-7" in body
        assert "laptop" not in body
        assert "allows 2 devices at a time" in " ".join(body.split())
    session = Session.objects.get(device_fp="desk-7")
    assert (session.ended_by, session.get_ended_by_display()) == (
        "devices",
        "another device took its place",
    )


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("full", "before", "name", "number"),
    [
        (OLDEST, ["", ""], "", 0),
        (REFUSE, ["", ""], "", 0),
        (OLDEST, ["a", "b"], "", 1),
        (OLDEST, ["", ""], "c", 1),
    ],
)
def test_a_session_without_a_name_that_takes_the_place_of_another_is_no_news(
    user: User, at: datetime, full: DevicesFull, before: list[str], name: str, number: int
) -> None:
    signed_in(user, *before, at=at)
    limit(user, 2, full)
    enter(user, name, at)
    assert len(mails()) == number


@pytest.mark.django_db
def test_a_refresh_is_never_refused(user: User, at: datetime) -> None:
    pairs = [enter(user, name, at) for name in ("a", "b", "")]
    for full in DevicesFull:
        limit(user, 1, full)
        pairs = [rotate(presented=each.refresh, device=Device(), now=at) for each in pairs]
    assert len(devices_held(user, at=at)) == 3


@pytest.mark.django_db
def test_personal_keys_and_other_people_count_for_nothing(user: User, at: datetime) -> None:
    Plan.objects.update(allows_keys=True)
    other = User.objects.create_user("ben@acme.test", PASSWORD, client=user.client)
    enter(other, "theirs", at)
    limit(user, 2)
    enter(user, "a", at)
    caller = load_caller(user_id=user.pk, session_id=Session.objects.get(user=user).pk)
    assert caller is not None
    of_key: Any = {"name": "editor", "days": 7, "monthly_output_tokens": None}
    make_key(caller=caller, **of_key, by=Actor(name="x"), now=at)
    enter(user, "b", at)
    assert sorted(held(user, at)) == ["a", "b"]


@pytest.mark.django_db
def test_the_least_recently_used_device_gives_way_not_the_first(user: User, at: datetime) -> None:
    """keycloak/keycloak#38016: the session that ends is the right one."""
    first = enter(user, "a", at - 3 * HOUR)
    enter(user, "b", at - 2 * HOUR)
    rotate(presented=first.refresh, device=Device(fingerprint="a"), now=at - HOUR)
    limit(user, 2, OLDEST)
    enter(user, "c", at)
    assert held(user, at) == ["a", "c"]


@pytest.mark.django_db
@pytest.mark.parametrize(
    "how",
    [
        # jellyfin/jellyfin#7140: an operator ended them all, and its person still could not sign in.
        "ended by an operator",
        "all revoked",
        # jellyfin/jellyfin#8801: nobody is signed in, and the limit is said to be reached.
        "tokens expired",
        "session expired",
    ],
)
def test_a_session_that_is_over_takes_no_place(user: User, at: datetime, how: str) -> None:
    by = Actor(name="operator@shell.test")
    (session,) = signed_in(user, "a", at=at)
    limit(user, 1)
    later = at
    if how == "ended by an operator":
        end_session(session=session, why=Session.Ended.REVOKED, by=by, now=at)
    elif how == "all revoked":
        revoke_all(user_id=user.pk, by=by, reason="x", now=at)
    elif how == "tokens expired":
        later = at + timedelta(days=31)
    else:
        Session.objects.update(expires_at=at)
    enter(user, "b", later)
    assert held(user, later) == ["b"]


@pytest.mark.django_db
def test_a_refused_person_gets_the_reason_and_signs_another_device_out(
    user: User, api: APIClient, at: datetime
) -> None:
    """jellyfin/jellyfin#10560: not that the password is wrong; and the way on is the same call."""
    access = enter(user, "a", at).access
    limit(user, 1)
    body = {"email": user.email, "password": PASSWORD, "device_fp": "b"}
    refused = api.post("/v1/auth/login", body, format="json")
    told = refused.json()
    assert (refused.status_code, told["code"]) == (403, "device_limit_reached")
    assert told["detail"].startswith("Your licence allows one device at a time.")
    (device,) = told["devices"]
    assert device["device"] == "a"
    # Right credentials spend nothing of the limit on wrong ones.
    for _ in range(30):
        assert api.post("/v1/auth/login", body, format="json").status_code in {403, 429}
    for wrong in (7, "", "x" * 36, ["a"], device["id"].replace("-", "")):
        asked = api.post("/v1/auth/login", {**body, "end_session": wrong}, format="json")
        assert (asked.status_code, asked.json()["errors"][0]["pointer"]) == (400, "/end_session")
    unknown = api.post("/v1/auth/login", {**body, "end_session": str(uuid4())}, format="json")
    assert (unknown.status_code, unknown.json()["code"]) == (404, "not_found")
    entered = api.post("/v1/auth/login", {**body, "end_session": device["id"]}, format="json")
    assert (entered.status_code, [*entered.json()]) == (200, ["access", "refresh", "expires_in"])
    # The access token of the one that ended is good for nothing at once.
    api.credentials(HTTP_AUTHORIZATION=f"Bearer {access}")
    assert api.get("/v1/auth/me").json()["code"] == "access_revoked"
    api.credentials(HTTP_AUTHORIZATION=f"Bearer {entered.json()['access']}")
    assert api.get("/v1/license/status").json()["devices"] == 1


@pytest.mark.django_db
def test_a_person_without_a_limit_pays_no_query(user: User, at: datetime) -> None:
    def queries(name: str) -> int:
        with CaptureQueriesContext(connection) as captured:
            enter(user, name, at)
        return len(captured)

    queries("a")
    free = queries("a")
    limit(user, 5)
    assert queries("a") == free + 1


@pytest.mark.django_db
def test_a_client_counts_its_people_over_a_number_and_shells_without_a_name(
    user: User, at: datetime
) -> None:
    assert user.client is not None
    signed_in(user, "a", "a", "b", "", "", at=at)
    other = User.objects.create_user("ben@acme.test", PASSWORD, client=user.client)
    enter(other, "a", at)
    found = devices_of_client(user.client.pk, at=at)
    assert (sorted(found.of_people), found.unnamed) == ([1, 4], 2)
    assert [found.people_over(number) for number in (0, 1, 3, 4)] == [2, 1, 1, 0]


@pytest.mark.django_db
def test_a_refused_device_is_an_item_of_attention_until_its_person_signs_in(
    user: User, operator: User, at: datetime
) -> None:
    def told() -> list[str]:
        found = items(now=at + HOUR, operator=operator)
        return [str(each) for each in found if each.kind.name == "devices"]

    signed_in(user, "a", at=at)
    limit(user, 1)
    assert told() == []
    with pytest.raises(DeviceLimitReached):
        enter(user, "b", at)
    assert told() == [
        "ada@acme.test could not sign in on another device: Acme allows 1 device per person."
    ]
    enter(user, "b", at + HOUR, Session.objects.get().pk)
    assert told() == []


@pytest.mark.django_db
@pytest.mark.parametrize("end", [False, True])
def test_a_failure_after_a_device_gave_way_ends_nothing(
    user: User, at: datetime, end: bool
) -> None:
    (session,) = signed_in(user, "a", at=at)
    limit(user, 1, OLDEST)
    with (
        patch.object(module.RefreshToken.objects, "create", side_effect=DatabaseError),
        pytest.raises(DatabaseError),
    ):
        enter(user, "b", at, session.pk if end else None)
    assert held(user, at) == ["a"]
    assert not AuditEvent.objects.filter(action="session:ended").exists()
    assert not mails()


@pytest.mark.django_db
def test_sessions_of_before_are_no_trouble_to_a_limit_that_is_set_afterwards(
    user: User, at: datetime
) -> None:
    """Shells of before send no name: each signs in again where its own place is the least recently used."""
    signed_in(user, "", "", "", at=at)
    limit(user, 2)
    for hour in range(5):
        enter(user, "", at + hour * HOUR)
        assert len(devices_held(user, at=at + hour * HOUR)) == 3


def racers(user: User, names: list[str], at: datetime, end: UUID | None = None) -> list[Any]:
    return [*race(*(partial(enter, user, name, at, end) for name in names))]


@pytest.fixture
def several(user: User) -> Iterator[User]:
    """The person, whose password is checked at once: a check takes its turn, and would put the racers in a row."""
    with patch.object(module, "check_password", lambda password, encoded, renew: True):
        yield user


NAMED = [f"device-{number}" for number in range(RACERS)]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("full", "before", "names", "entered", "live"),
    [
        (REFUSE, ["a"], NAMED, 1, 2),
        (REFUSE, ["a", "b"], NAMED, 0, 2),
        (REFUSE, [], ["same"] * RACERS, RACERS, 1),
        (REFUSE, ["a"], [""] * RACERS, RACERS, 2),
        (REFUSE, ["a", "b"], [""] * RACERS, 0, 2),
        (REFUSE, ["a"], NAMED[::2] + [""] * (RACERS // 2), None, 2),
        (OLDEST, ["a"], NAMED, RACERS, 2),
        (OLDEST, ["a", "b"], [""] * RACERS, RACERS, 2),
        (OLDEST, [], NAMED[::2] + [""] * (RACERS // 2), RACERS, 2),
    ],
)
def test_twenty_at_once_never_pass_the_limit(
    several: User,
    at: datetime,
    full: DevicesFull,
    before: list[str],
    names: list[str],
    entered: int | None,
    live: int,
) -> None:
    signed_in(several, *before, at=at)
    limit(several, 2, full)
    ended = racers(several, names, at)
    came = [each for each in ended if isinstance(each, TokenPair)]
    refused = [each for each in ended if not isinstance(each, TokenPair)]
    assert {type(each) for each in refused} <= {DeviceLimitReached}
    assert entered is None or len(came) == entered
    assert len(devices_held(several, at=at)) == live


@pytest.mark.django_db(transaction=True)
def test_twenty_who_give_up_the_same_session_take_its_place_once(
    several: User, at: datetime
) -> None:
    first, _ = signed_in(several, "a", "b", at=at)
    limit(several, 2)
    ended = racers(several, NAMED, at, first.pk)
    assert sum(isinstance(each, TokenPair) for each in ended) == 1
    assert {type(each) for each in ended} == {TokenPair, NotFound}
    assert len(devices_held(several, at=at)) == 2


@pytest.mark.django_db(transaction=True)
def test_a_device_that_is_signed_out_meanwhile_frees_one_place(
    several: User, at: datetime, by: Actor
) -> None:
    first, _ = signed_in(several, "a", "b", at=at)
    limit(several, 2)
    leave: Callable[[], Any] = partial(
        end_session, session=first, why=Session.Ended.LOGOUT, by=by, now=at
    )
    ended = race(*(partial(enter, several, name, at) for name in NAMED), leave)
    assert ended[-1] is True
    assert sum(isinstance(each, TokenPair) for each in ended) <= 1
    assert len(devices_held(several, at=at)) <= 2


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("full", DevicesFull)
def test_nobody_is_left_signed_in_where_the_person_is_disabled_meanwhile(
    several: User, organisation: Client, at: datetime, by: Actor, full: DevicesFull
) -> None:
    signed_in(several, "a", "b", at=at)
    limit(several, 2, full)
    leave: Callable[[], Any] = partial(
        disable, user_id=several.pk, reason="They left.", by=by, now=at
    )
    ended = race(*(partial(enter, several, name, at) for name in NAMED), leave)
    strangers = (TokenPair, DeviceLimitReached, InvalidCredentials)
    assert all(isinstance(each, strangers) for each in ended[:-1])
    assert devices_held(several, at=at) == []
