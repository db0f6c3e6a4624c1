"""Places that an account is known at, and what a failure there counts against."""

from datetime import datetime

import pytest
from rest_framework.test import APIClient

from accounts.audit import Actor, record
from accounts.models import Session, User
from accounts.sessions.known_places import OPERATOR_SIGNED_IN, limits_of_holder, limits_of_operator
from accounts.sessions.sign_in import Device, account_of, sign_in
from tests.conftest import PASSWORD, Browser

pytestmark = pytest.mark.django_db

HERE, ELSEWHERE = "203.0.113.7", "198.51.100.9"


def key(*parts: str) -> tuple[str, str]:
    return "auth.account", "".join(f"{len(part)}:{part}" for part in parts)


STRANGER = [key("account", "ada@acme.test"), ("auth.all", "")]


@pytest.fixture
def _has_signed_in(user: User, signing_key: None, now: datetime) -> None:
    device = Device(fingerprint="desk-7", address=HERE)
    sign_in(email=user.email, password=PASSWORD, device=device, now=now)


def limits(address: str | None = ELSEWHERE, device: str = "") -> list[tuple[str, str]]:
    at = Device(fingerprint=device, address=address)
    return list(account_of("Ada@Acme.test", device=at).limits)


def test_a_person_who_has_never_signed_in_is_a_stranger_everywhere(user: User) -> None:
    assert limits(HERE, "desk-7") == limits(None) == STRANGER


@pytest.mark.usefixtures("_has_signed_in")
class TestOfAPerson:
    def test_address_and_device_of_a_sign_in_are_known(self) -> None:
        assert limits(HERE) == [key("address", "ada@acme.test", "203.0.113.7/32")]
        assert limits(ELSEWHERE, "desk-7") == [key("device", "ada@acme.test", "desk-7")]
        assert limits(HERE, "desk-8") == limits(HERE)
        assert limits(ELSEWHERE, "desk-8") == limits(ELSEWHERE) == limits(None) == STRANGER

    def test_an_address_that_a_session_has_moved_to_is_known_too(self) -> None:
        Session.objects.update(last_used_from=ELSEWHERE)
        assert limits(ELSEWHERE) == [key("address", "ada@acme.test", f"{ELSEWHERE}/32")]

    def test_neighbours_of_an_ipv6_network_are_one_place(self) -> None:
        Session.objects.update(started_from="2001:db8:0:1::1")
        known = [key("address", "ada@acme.test", "2001:db8:0:1::/64")]
        assert limits("2001:db8:0:1:ffff::9") == known
        assert limits("2001:db8:0:2::1") == STRANGER

    def test_no_device_at_all_is_not_a_known_one(self) -> None:
        Session.objects.update(device_fp="")
        assert limits(ELSEWHERE, "") == STRANGER

    def test_anothers_place_is_not_known(self) -> None:
        at = Device(fingerprint="desk-7", address=HERE)
        assert list(account_of("bob@acme.test", device=at).limits) == [
            key("account", "bob@acme.test"),
            ("auth.all", ""),
        ]

    def test_known_places_take_one_query_for_any_person(self, django_assert_num_queries) -> None:
        for email in ("ada@acme.test", "nobody@acme.test"):
            with django_assert_num_queries(1):
                account_of(email, device=Device(fingerprint="desk-7", address=HERE))


@pytest.mark.usefixtures("_has_signed_in")
@pytest.mark.parametrize(
    "invented",
    [
        "ada@acme.test at 203.0.113.7/32",
        "ada@acme.test14:203.0.113.7/32",
        "7:address13:ada@acme.test14:203.0.113.7/32",
        "ada@acme.test at device desk-7",
        "{id} signed in",
        "9:signed in36:{id}",
    ],
)
def test_no_text_that_somebody_signs_in_with_is_a_place_of_another(
    user: User, invented: str
) -> None:
    name = invented.format(id=user.pk)
    theirs = {*account_of(name, device=Device(fingerprint="", address=ELSEWHERE)).limits}
    hers = {*limits(HERE), *limits(ELSEWHERE, "desk-7"), *limits_of_holder(user_id=user.pk)}
    assert theirs.isdisjoint(hers)


def test_an_operator_is_known_where_he_has_come_in(operator: User, now: datetime) -> None:
    stranger = [key("account", operator.email), ("auth.all", "")]
    assert list(limits_of_operator(email=operator.email, address=HERE)) == stranger
    by = Actor(name=operator.email, id=operator.pk, address=HERE)
    record(OPERATOR_SIGNED_IN, by=by, now=now, target=operator.email, target_id=operator.pk)
    known = limits_of_operator(email=operator.email.upper(), address=HERE)
    assert list(known) == [key("address", operator.email, f"{HERE}/32")]
    assert list(limits_of_operator(email=operator.email, address=ELSEWHERE)) == stranger


def test_the_console_knows_operators_by_what_it_writes_down(
    stranger: Browser, operator: User, settings
) -> None:
    settings.RATE_LIMITS = {"auth.account": "1/h"}
    form = {"username": operator.email, "password": PASSWORD}
    assert stranger.post("/admin/login/", form).status_code == 302
    elsewhere = Browser(HTTP_X_OTHER="1")
    elsewhere.defaults["REMOTE_ADDR"] = ELSEWHERE
    wrong = {**form, "password": "a guess"}
    assert [elsewhere.post("/admin/login/", wrong).status_code for _ in range(2)] == [200, 429]
    assert elsewhere.post("/admin/login/", form).status_code == 429
    assert stranger.post("/admin/login/", form).status_code == 302


def test_strangers_do_not_keep_a_person_from_changing_the_password(
    signed_in: APIClient, user: User, settings
) -> None:
    settings.RATE_LIMITS = {"auth.account": "1/h"}
    guess = {"email": user.email, "password": "a guess"}
    statuses = [
        APIClient(REMOTE_ADDR=ELSEWHERE)
        .post("/v1/auth/login", guess, format="json", secure=True)
        .status_code
        for _ in range(2)
    ]
    assert statuses == [401, 429]
    change = {"current": PASSWORD, "new": "another good horse battery"}
    assert signed_in.post("/v1/auth/password/change", change, format="json").status_code == 204
