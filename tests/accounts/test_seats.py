"""Seats of a licence: one rule at every door, also for twenty at once at the last one."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from itertools import combinations_with_replacement
from typing import Any

import pytest
from django.core.cache import cache
from django.db import connection, transaction
from django.urls import reverse
from procrastinate.contrib.django.models import ProcrastinateJob
from rest_framework.test import APIClient

from accounts.audit import Actor
from accounts.models import AuditEvent, Client, User
from accounts.people.access import MovedMeanwhile, disable, enable
from accounts.people.clients import set_alert_email
from accounts.people.erasure import erase_user
from accounts.people.importing import import_people
from accounts.people.invitations import emails_in, invite
from accounts.people.users import add_user, move_user
from accounts.seats import SeatsExhausted, seats_used
from config.composition.attention.listing import items
from config.composition.attention.notifying import notify
from licensing.licences import create_client, set_terms
from licensing.models import Licence, Plan
from tests.accounts.people.test_password_links import INVITATION, sent, use
from tests.accounts.test_access_races import until_somebody_waits
from tests.conftest import Browser
from tests.console.test_watch import beat
from tests.races import race

How = dict[str, Any]
Door = Callable[[str], Any]
RACERS = 20
HOUR = timedelta(hours=1)


@pytest.fixture
def how(by: Actor, now: Any) -> How:
    return {"by": by, "now": now}


@pytest.fixture
def acme(plan: Plan, how: How) -> Client:
    return create_client(name="Acme Ltd", plan=plan, **how)


def doors(client: Client, how: How) -> dict[str, Door]:
    """Every way by which somebody becomes an enabled person of a client, for a name that is not here yet."""

    def moved(name: str) -> Any:
        user = User.objects.get(email=f"{name}@elsewhere.test")
        return move_user(user_id=user.pk, client=client, reason="They moved.", **how)

    def enabled(name: str) -> Any:
        user = User.objects.get(email=f"{name}@disabled.test")
        return enable(user_id=user.pk, reason="They are back.", **how)

    return {
        "adding": lambda name: add_user(email=f"{name}@new.test", client=client, **how),
        "inviting": lambda name: invite(
            named=emails_in(f"{name}@invited.test"), client=client, **how
        ),
        "importing": lambda name: import_people(
            text=f"email\n{name}@imported.test\n", client=client, invited=False, **how
        ),
        "moving": moved,
        "enabling": enabled,
    }


def arrange(client: Client, how: How, names: list[str]) -> None:
    """People who may come by moving or by being enabled."""
    for name in names:
        add_user(email=f"{name}@elsewhere.test", client=None, **how)
        user = add_user(email=f"{name}@disabled.test", client=client, **how)
        disable(user_id=user.pk, reason="They left.", **how)


def set_seats(client: Client, seats: int | None, how: How) -> None:
    licence = Licence.objects.get(client=client)
    set_terms(licence_id=licence.pk, seats=seats, reason="As agreed.", **how)


@pytest.mark.django_db
@pytest.mark.parametrize("door", ["adding", "inviting", "importing", "moving", "enabling"])
def test_no_door_leads_past_the_last_seat(acme: Client, how: How, door: str) -> None:
    arrange(acme, how, ["ada", "ben"])
    set_seats(acme, 1, how)
    come = doors(acme, how)[door]
    come("ada")
    with pytest.raises(SeatsExhausted) as refused:
        come("ben")
    assert (refused.value.status, refused.value.members) == (409, {"seats": 1, "used": 1})
    assert seats_used(acme.pk) == 1
    set_seats(acme, None, how)
    come("ben")
    assert seats_used(acme.pk) == 2


@pytest.mark.django_db
def test_fewer_seats_disable_nobody_and_whoever_is_here_is_no_new_one(
    acme: Client, how: How
) -> None:
    for name in ("ada", "ben", "cem"):
        add_user(email=f"{name}@acme.test", client=acme, **how)
    set_seats(acme, 2, how)
    assert seats_used(acme.pk) == 3
    everybody = "email\n" + "".join(f"{name}@acme.test\n" for name in ("ada", "ben", "cem"))
    assert import_people(text=everybody, client=acme, invited=True, **how).added == 0
    first, second, *_ = User.objects.filter(client=acme).order_by("email")
    for each in (first, second):
        disable(user_id=each.pk, reason="They left.", **how)
    enable(user_id=first.pk, reason="They are back.", **how)
    with pytest.raises(SeatsExhausted):
        enable(user_id=second.pk, reason="They too.", **how)


@pytest.mark.django_db
def test_a_list_of_people_is_added_whole_or_not_at_all(acme: Client, how: How) -> None:
    set_seats(acme, 3, how)
    named = emails_in("a@acme.test, b@acme.test, c@acme.test, d@acme.test")
    with pytest.raises(SeatsExhausted):
        invite(named=named, client=acme, **how)
    assert seats_used(acme.pk) == 0
    invite(named=named[:3], client=acme, **how)


@pytest.mark.django_db
def test_an_invited_person_takes_no_second_seat(
    acme: Client, how: How, now: Any, settings: Any
) -> None:
    """An invitation is asked for again and accepted at a full licence (sbomify/sbomify#1622, langgenius/dify#38995)."""
    settings.BASE_URL = "https://shell.test"
    set_seats(acme, 2, how)
    add_user(email="ada@acme.test", client=acme, **how)
    invite(named=emails_in("ben@acme.test"), client=acme, **how)
    again = invite(named=emails_in("ada@acme.test, ben@acme.test"), client=acme, **how)
    assert (again.added, again.invited) == (0, 2)
    ben = User.objects.get(email="ben@acme.test")
    use(sent(ben, now=now, kind=INVITATION), now=now)
    assert seats_used(acme.pk) == 2
    assert not AuditEvent.objects.filter(action="client:seat_refused").exists()
    with pytest.raises(SeatsExhausted) as refused:
        invite(named=emails_in("ada@acme.test, cem@acme.test"), client=acme, **how)
    assert "2 of 2 seats are taken. 1 more seat is needed" in refused.value.detail


@pytest.mark.django_db
def test_a_refused_seat_is_an_item_of_attention_until_one_is_free(
    acme: Client, operator: User, how: How, now: Any
) -> None:
    def told() -> list[str]:
        return [
            str(each.row.client)
            for each in items(now=now, operator=operator)
            if each.kind.name == "seats"
        ]

    set_seats(acme, 1, how)
    add_user(email="ada@acme.test", client=acme, **how)
    # A full licence is no trouble before somebody was refused.
    assert told() == []
    with pytest.raises(SeatsExhausted):
        add_user(email="ben@acme.test", client=acme, **how)
    assert told() == ["Acme Ltd"]
    cache.clear()
    assert told() == ["Acme Ltd"]
    set_seats(acme, 2, how)
    assert told() == []


@pytest.mark.django_db
@pytest.mark.parametrize("door", ["adding", "inviting", "importing", "moving", "enabling"])
def test_a_refusal_at_each_door_is_on_record_once_a_day(
    acme: Client, how: How, now: Any, door: str
) -> None:
    names = ["ada", "ben", "cem", "dea"]
    arrange(acme, how, names)
    set_seats(acme, 1, how)
    doors(acme, how)[door]("ada")
    for name, at in (("ben", now), ("cem", now + 23 * HOUR), ("dea", now + 25 * HOUR)):
        with pytest.raises(SeatsExhausted):
            doors(acme, {**how, "now": at})[door](name)
    events = AuditEvent.objects.filter(action="client:seat_refused").order_by("at")
    assert [(each.target_id, each.at, each.after) for each in events] == [
        (str(acme.pk), at, {"seats": 1, "used": 1}) for at in (now, now + 25 * HOUR)
    ]


@pytest.mark.django_db
def test_a_refusal_in_the_console_is_on_record_though_nothing_is_changed(
    console: Browser, acme: Client, how: How
) -> None:
    set_seats(acme, 1, how)
    page = reverse("admin:accounts_client_invite", args=[acme.pk])
    answer = console.post(page, {"emails": "ada@acme.test, ben@acme.test"})
    assert "0 of 1 seats are taken. 1 more seat is needed" in answer.content.decode()
    assert seats_used(acme.pk) == 0
    assert AuditEvent.objects.get(action="client:seat_refused").actor != ""


@pytest.mark.django_db
def test_a_refused_seat_is_mailed_when_it_begins_and_when_it_ends(
    acme: Client, how: How, now: Any
) -> None:
    def mailed() -> list[str]:
        notify(now=now)
        jobs = ProcrastinateJob.objects.filter(task_name="mail.send").order_by("id")
        subjects = [each.args["subject"] for each in jobs]
        return [each for each in subjects if "seat" in each]

    beat(now)
    set_seats(acme, 1, how)
    add_user(email="ada@acme.test", client=acme, **how)
    assert mailed() == []
    for _ in range(2):
        with pytest.raises(SeatsExhausted):
            add_user(email="ben@acme.test", client=acme, **how)
        assert mailed() == ["A client has no free seat"]
    set_seats(acme, 2, how)
    assert mailed() == ["A client has no free seat", "Over: A client has no free seat"]


@pytest.mark.django_db
def test_the_overview_and_the_page_of_a_client_say_that_no_seat_is_free(
    console: Browser, acme: Client, how: How
) -> None:
    set_seats(acme, 1, how)
    add_user(email="ada@acme.test", client=acme, **how)
    with pytest.raises(SeatsExhausted):
        add_user(email="ben@acme.test", client=acme, **how)
    for page in ("/admin/", f"/admin/accounts/client/{acme.pk}/change/"):
        answer = console.get(page)
        assert answer.status_code == 200
        link = f'<a href="/admin/accounts/client/{acme.pk}/change/">Acme Ltd</a> has no free seat'
        assert link in answer.content.decode()


@pytest.mark.django_db
def test_clients_without_a_free_seat_that_are_not_listed_are_counted(
    plan: Plan, operator: User, how: How, now: Any
) -> None:
    for number in range(5):
        client = create_client(name=f"Client {number}", plan=plan, **how)
        set_seats(client, 1, how)
        add_user(email=f"ada@client-{number}.test", client=client, **how)
        with pytest.raises(SeatsExhausted):
            add_user(email=f"ben@client-{number}.test", client=client, **how)
    found = [each for each in items(now=now, operator=operator) if each.kind.name == "seats"]
    assert [str(each) for each in found if each.more] == [
        "2 more clients with no free seat, where somebody was refused one."
    ]


@pytest.mark.django_db
def test_the_licence_status_has_the_seats_where_there_is_a_limit(
    signed_in: APIClient, user: User, how: How
) -> None:
    assert "seats" not in signed_in.get("/v1/license/status").json()
    assert user.client is not None
    set_seats(user.client, 20, how)
    assert signed_in.get("/v1/license/status").json()["seats"] == 20


def apart(act: Callable[[], Any]) -> Any:
    """The result of an act or its error, on a connection of its own."""
    try:
        return act()
    except Exception as error:  # noqa: BLE001 - it is the result
        return error
    finally:
        connection.close()


@pytest.mark.django_db(transaction=True)
def test_a_person_moved_while_being_enabled_takes_no_seat_of_the_other_client(
    acme: Client, plan: Plan, how: How
) -> None:
    other = create_client(name="Borealis GmbH", plan=plan, **how)
    add_user(email="bea@borealis.test", client=other, **how)
    set_seats(other, 1, how)
    user = add_user(email="ada@acme.test", client=acme, **how)
    disable(user_id=user.pk, reason="They left.", **how)
    with ThreadPoolExecutor(1) as pool:
        with transaction.atomic():
            Client.objects.select_for_update(no_key=True).get(pk=acme.pk)
            ended = pool.submit(
                apart, lambda: enable(user_id=user.pk, reason="They are back.", **how)
            )
            until_somebody_waits()
            move_user(user_id=user.pk, client=other, reason="They moved.", **how)
        assert isinstance(ended.result(100), MovedMeanwhile)
    assert seats_used(other.pk) == 1


@pytest.mark.django_db(transaction=True)
def test_erasing_waits_for_a_client_before_it_locks_the_person(acme: Client, how: How) -> None:
    user = add_user(email="ada@acme.test", client=acme, **how)
    set_alert_email(client_id=acme.pk, email=user.email, **how)
    erase = {"user_id": user.pk, "email": user.email, "reason": "They asked for it."}
    with ThreadPoolExecutor(1) as pool:
        with transaction.atomic():
            # As every rule of seats locks: a client, and then the person.
            Client.objects.select_for_update(no_key=True).get(pk=acme.pk)
            ended = pool.submit(apart, lambda: erase_user(**erase, **how))
            until_somebody_waits()
            User.objects.select_for_update(no_key=True, nowait=True).get(pk=user.pk)
        assert not isinstance(ended.result(100), Exception)
    acme.refresh_from_db()
    assert acme.alert_email == ""


PAIRS = list(
    combinations_with_replacement(["adding", "inviting", "importing", "moving", "enabling"], 2)
)


@pytest.mark.full
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
def test_twenty_at_once_take_the_last_seat_once(
    acme: Client, how: How, pair: tuple[str, str]
) -> None:
    names = [f"person-{number}" for number in range(RACERS)]
    arrange(acme, how, names)
    set_seats(acme, 1, how)
    ways = doors(acme, how)
    ended = race(
        *(
            (lambda name=name, way=ways[pair[number % 2]]: way(name))
            for number, name in enumerate(names)
        )
    )
    refused = [each for each in ended if isinstance(each, Exception)]
    assert {type(each) for each in refused} == {SeatsExhausted}
    assert len(refused) == RACERS - 1
    assert seats_used(acme.pk) == 1
    assert AuditEvent.objects.filter(action="client:seat_refused").count() == 1
    ProcrastinateJob.objects.all().delete()
