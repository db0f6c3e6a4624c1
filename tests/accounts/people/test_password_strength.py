"""Passwords that may be set, and the refusals of others."""

from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from threading import Event

import pytest
from django.contrib.auth.hashers import check_password, make_password
from django.core.management import CommandError, call_command
from django.utils import timezone
from rest_framework.test import APIClient

from accounts.audit import Actor
from accounts.models import Client, User
from accounts.people import password_strength
from accounts.people.one_time_passwords import set_one_time_password
from accounts.people.users import set_password
from accounts.sessions.sign_in import Device, TokenPair, sign_in
from config.platform.concurrency import greenlets
from config.platform.problems.problem import InvalidRequest
from tests.conftest import PASSWORD, Browser
from tests.effort import takes_at_most

pytestmark = pytest.mark.django_db
EASY = "This password is easy to guess."
OF_CONTEXT = "little more than your email, your company's name or the name of this product"
ONE_WORD = "one word with digits or symbols"


def refusals(user: User, password: str, *, by: Actor, now: datetime) -> list[str]:
    """Returns the refusals of a password; none if it was set."""
    try:
        set_password(user_id=user.pk, password=password, by=by, now=now)
    except InvalidRequest as refusal:
        return [f"{fault.code}: {fault.detail}" for fault in refusal.errors]
    return []


@pytest.mark.parametrize(
    ("password", "why"),
    [
        ("aaaaaaaaaaaa", "Repeats like"),
        ("abcdefghijklm", "Sequences like"),
        ("Password1234!", ONE_WORD),
        ("summer2026!!", ONE_WORD),
        ("!!Autumn2026", ONE_WORD),
        ("welcome12345", ONE_WORD),
        ("Acme Industries!", OF_CONTEXT),
        ("acmeindustries1", OF_CONTEXT),
        ("ada@acme.test1", OF_CONTEXT),
        ("shellbackend1", OF_CONTEXT),
        ("hunter2hunter2hunter2", "Repeats like"),
    ],
)
def test_a_password_that_is_easy_to_guess_is_refused_with_advice(
    user: User, by: Actor, now: datetime, password: str, why: str
) -> None:
    Client.objects.update(name="Acme Industries")
    said = " ".join(refusals(user, password, by=by, now=now))
    assert f"password_too_weak: {EASY}" in said
    assert why in said
    assert "Use several unrelated words." in said
    assert password not in said


@pytest.mark.parametrize(
    "password",
    [
        "chickenwing101",
        "CHICKENWING101",
        "look at my horse my horse is amazing",
        "polniypizdec0211",
    ],
)
def test_a_breached_password_is_refused_whatever_its_strength(
    user: User, by: Actor, now: datetime, password: str
) -> None:
    assert "password_too_common" in " ".join(refusals(user, password, by=by, now=now))


@pytest.mark.parametrize(
    "password",
    [
        PASSWORD,
        "kitten-in-a-box",
        "I love my garden",
        "zq9$Lm2!vT7c",
        "483920184736",
        "пароль-водопад-стул",
        "日本語の長いパスワードです",
        "summer483920184736",
        "a sentence about Acme and its rainy summer",
    ],
)
def test_a_good_one_is_taken_whatever_it_is_composed_of(
    user: User, by: Actor, now: datetime, password: str
) -> None:
    assert refusals(user, password, by=by, now=now) == []


def test_only_the_first_72_characters_count(user: User, by: Actor, now: datetime) -> None:
    assert refusals(user, "a" * 72 + PASSWORD, by=by, now=now)
    assert refusals(user, PASSWORD + "a" * 900, by=by, now=now) == []


def test_sign_ins_do_not_wait_for_an_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, may_end = Event(), Event()

    def slow(password: str, context: list[str]) -> None:
        begun.set()
        assert may_end.wait(100)

    monkeypatch.setattr(password_strength, "_weakness", slow)
    monkeypatch.setattr(greenlets, "QUEUE_SECONDS", 0.05)
    with ThreadPoolExecutor(1) as pool:
        judged = pool.submit(password_strength.StrengthValidator(12).validate, PASSWORD)
        assert begun.wait(100)
        try:
            assert check_password(PASSWORD, make_password(PASSWORD))
        finally:
            may_end.set()
        judged.result(100)


def test_no_password_takes_long_to_judge(user: User, by: Actor, now: datetime) -> None:
    """zxcvbn itself takes 20 s for the first."""
    for password in ("[2(9{+5+s73{+@7$z@5962{!@@@s%@73$@065+%6" * 2, "1!|7+(" * 12, "aA" * 36):
        assert takes_at_most(250, lambda each=password: refusals(user, each, by=by, now=now))


def test_a_password_of_before_still_signs_in(user: User, signing_key: None, now: datetime) -> None:
    user.set_password("aaaaaaaaaaaa")
    user.save(update_fields=["password"])
    assert sign_in(email=user.email, password="aaaaaaaaaaaa", device=Device(), now=now).access


class TestWhereverOneIsSet:
    def test_a_change_by_its_owner_refuses_a_weak_password(
        self, api: APIClient, pair: TokenPair
    ) -> None:
        api.credentials(HTTP_AUTHORIZATION=f"Bearer {pair.access}")
        given = {"current": PASSWORD, "new": "summer2026!!"}
        answer = api.post("/v1/auth/password/change", given, format="json")
        assert answer.status_code == 400
        (fault,) = answer.json()["errors"]
        assert (fault["pointer"], fault["code"]) == ("/new", "password_too_weak")
        assert ONE_WORD in fault["detail"]

    def test_a_one_time_password_does_not_allow_a_weak_password(
        self, stranger: Browser, user: User, by: Actor, now: datetime
    ) -> None:
        at = timezone.now()
        made = set_one_time_password(user_id=user.pk, reason="No mail.", by=by, now=at)
        given = {"email": user.email, "one_time": made.password}
        for password, status in (("summer2026!!", 200), (PASSWORD + " two", 302)):
            form = {**given, "password": password, "again": password}
            answer = stranger.post("/account/password", form)
            assert answer.status_code == status
            assert (ONE_WORD in answer.content.decode()) == (status == 200)

    def test_the_console_refuses_a_weak_password_of_an_operator(
        self, console: Browser, operator: User
    ) -> None:
        form = {"old_password": PASSWORD}
        form |= {"new_password1": "summer2026!!", "new_password2": "summer2026!!"}
        answer = console.post("/admin/password_change/", form)
        assert ONE_WORD in answer.content.decode()
        operator.refresh_from_db()
        assert operator.check_password(PASSWORD)

    def test_createsuperuser_refuses_a_weak_password(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("DJANGO_SUPERUSER_PASSWORD", "summer2026!!")
        with pytest.raises(CommandError, match=ONE_WORD):
            call_command("createsuperuser", "--noinput", "--email", "first@shell.test")
        assert not User.objects.filter(email="first@shell.test").exists()
