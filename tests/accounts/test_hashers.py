"""Hashing of passwords."""

from typing import Any
from unittest.mock import patch

import pytest
from argon2 import PasswordHasher
from django.contrib.auth.hashers import check_password, get_hasher, make_password
from rest_framework.test import APIClient

from accounts import hashers
from accounts.hashers import GatedArgon2Hasher
from accounts.models import User
from accounts.people import password_strength
from tests.conftest import PASSWORD, Browser


def test_a_password_is_hashed_with_the_parameters_of_the_contract() -> None:
    assert make_password(PASSWORD).startswith("argon2$argon2id$v=19$m=19456,t=2,p=1$")


@pytest.mark.parametrize(
    ("time_cost", "memory_cost", "rest"),
    [(1, 8192, (2, 15360)), (2, 19455, (2, 8)), (2, 19456, None), (2, 102400, None)],
)
def test_a_wrong_password_costs_todays_work_whatever_its_hash_asks_for(
    time_cost: int, memory_cost: int, rest: tuple[int, int] | None
) -> None:
    old = PasswordHasher(time_cost, memory_cost, 1).hash(PASSWORD)
    encoded = f"argon2{old}"
    asked: list[tuple[int, int]] = []

    class Watched(PasswordHasher):
        def __init__(self, time_cost: int, memory_cost: int, parallelism: int) -> None:
            asked.append((time_cost, memory_cost))
            super().__init__(time_cost, memory_cost, parallelism)

    with patch.object(hashers, "PasswordHasher", Watched):
        assert not check_password("wrong", encoded)
        assert asked == ([rest] if rest else [])
        assert check_password(PASSWORD, encoded)


def test_the_gated_hasher_is_the_only_hasher() -> None:
    assert isinstance(get_hasher("default"), GatedArgon2Hasher)


def with_an_old_hash(user: User) -> User:
    user.password = f"argon2{PasswordHasher(1, 8192, 1).hash(PASSWORD)}"
    user.save(update_fields=["password"])
    return user


def test_an_old_hash_is_upgraded_when_its_password_is_checked(user: User) -> None:
    old = with_an_old_hash(user).password
    assert not user.check_password("wrong")
    assert User.objects.get(pk=user.pk).password == old
    assert user.check_password(PASSWORD)
    assert User.objects.get(pk=user.pk).password == user.password != old
    assert user.password.startswith("argon2$argon2id$v=19$m=19456,t=2,p=1$")


def test_an_upgrade_does_not_bring_a_replaced_password_back(user: User) -> None:
    read_before = with_an_old_hash(user)
    replaced = make_password("another good horse battery")
    User.objects.filter(pk=user.pk).update(password=replaced)
    assert read_before.check_password(PASSWORD)
    assert User.objects.get(pk=user.pk).password == replaced


LONG = "a" + "\u0301" * 1_024


@pytest.mark.parametrize(
    ("address", "given"),
    [
        ("/v1/auth/login", {"email": "ada@acme.test", "password": LONG}),
        ("/v1/auth/password/change", {"current": LONG, "new": "another"}),
        ("/v1/auth/password/change", {"current": PASSWORD, "new": LONG}),
        ("/admin/login/", {"username": "operator@shell.test", "password": LONG}),
        (
            "/admin/password_change/",
            {"old_password": LONG, "new_password1": "another", "new_password2": "another"},
        ),
        (
            "/admin/password_change/",
            {"old_password": PASSWORD, "new_password1": LONG, "new_password2": LONG},
        ),
        (
            "/account/password",
            {"email": "ada@acme.test", "one_time": "A" * 23, "password": LONG, "again": LONG},
        ),
        (
            "/account/password",
            {"email": "ada@acme.test", "one_time": LONG, "password": PASSWORD, "again": PASSWORD},
        ),
    ],
)
def test_a_password_beyond_the_limit_is_refused_before_it_is_hashed_or_judged(
    console: Browser, signed_in: APIClient, monkeypatch: pytest.MonkeyPatch, address: str,
    given: dict[str, str],
) -> None:  # fmt: skip
    def busy(*_: Any, **__: Any) -> None:
        pytest.fail("It was hashed or judged.")

    for name in ("encode", "verify"):
        monkeypatch.setattr(GatedArgon2Hasher, name, busy)
    monkeypatch.setattr(password_strength, "zxcvbn", busy)
    if address.startswith("/v1/"):
        assert signed_in.post(address, given, format="json").status_code == 400
    else:
        if address == "/admin/login/":
            console.logout()
        answer = console.post(address, given)
        assert answer.status_code == 200
        assert answer.context["form"].errors
