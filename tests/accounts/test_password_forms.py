"""A password is the same one however its accents are typed, and hashes of before go on."""

from datetime import datetime
from typing import Any
from unicodedata import normalize
from unittest.mock import patch

import pytest
from argon2 import PasswordHasher
from django.contrib.auth.hashers import check_password as checked_before
from django.contrib.auth.hashers import make_password
from django.core.management import call_command
from rest_framework.test import APIClient

from accounts.audit import Actor
from accounts.hashers import GatedArgon2Hasher, check_password
from accounts.management import terminal
from accounts.models import Client, PasswordLink, User
from accounts.people.one_time_passwords import set_one_time_password
from accounts.people.password_links import make_link, use_link
from accounts.people.password_strength import OF_CONTEXT
from accounts.people.users import change_password, set_password
from accounts.sessions.sign_in import Device, InvalidCredentials, sign_in
from config.platform.problems.problem import InvalidRequest
from tests.conftest import Browser

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("signing_key")]
COMPOSED = "Crème-Brûlée über Äpfel 47"
DECOMPOSED = normalize("NFD", COMPOSED)
MIXED = DECOMPOSED[:12] + normalize("NFC", DECOMPOSED[12:])
FORMS = [COMPOSED, DECOMPOSED, MIXED]
OTHER = "Müßiggang mag Kühe 31"


def enters(user: User, password: str, now: datetime) -> bool:
    try:
        return bool(sign_in(email=user.email, password=password, device=Device(), now=now).access)
    except InvalidCredentials:
        return False


@pytest.mark.parametrize("typed", FORMS)
@pytest.mark.parametrize("given", FORMS)
def test_a_password_of_today_is_right_in_every_form(
    user: User, by: Actor, now: datetime, given: str, typed: str
) -> None:
    set_password(user_id=user.pk, password=given, by=by, now=now)
    assert enters(user, typed, now)
    assert not enters(user, typed.replace("e", "ê", 1), now)
    user.refresh_from_db()
    assert checked_before(COMPOSED, user.password), "a process of before finds it as NFC"


@pytest.mark.parametrize(
    ("hashed", "typed"),
    [(form, form) for form in FORMS] + [(COMPOSED, DECOMPOSED), (DECOMPOSED, COMPOSED)],
)
def test_a_hash_of_before_goes_on_and_is_left_as_it_is(
    user: User, now: datetime, hashed: str, typed: str
) -> None:
    before = make_password(hashed)
    User.objects.update(password=before)
    assert enters(user, typed, now)
    assert User.objects.get().password == before


def test_a_cheaper_hash_of_before_is_renewed_in_its_own_form(user: User, now: datetime) -> None:
    User.objects.update(password=f"argon2{PasswordHasher(1, 8192, 1).hash(DECOMPOSED)}")
    assert enters(user, COMPOSED, now)
    renewed = User.objects.get().password
    assert "m=19456" in renewed
    assert checked_before(DECOMPOSED, renewed), "as a process of before has it typed"
    User.objects.update(password=f"argon2{PasswordHasher(1, 8192, 1).hash(DECOMPOSED)}")
    assert User.objects.get().check_password(COMPOSED)
    assert checked_before(DECOMPOSED, User.objects.get().password)


@pytest.mark.parametrize(
    ("typed", "number"),
    [("plain letters ß 日本", 1), (COMPOSED, 2), (DECOMPOSED, 2), (MIXED, 3)],
)
@pytest.mark.parametrize(
    "case", ["right", "wrong", "unknown", "disabled", "without a password", "client-less"]
)
def test_the_work_of_a_sign_in_depends_on_the_typed_text_alone(
    api: APIClient, user: User, case: str, typed: str, number: int
) -> None:
    user.password = make_password(None if case == "without a password" else typed)
    if case == "wrong":
        user.password = make_password("another one entirely")
    user.is_active = case != "disabled"
    user.client_id = None if case == "client-less" else user.client_id
    user.save()
    email = "nobody@acme.test" if case == "unknown" else user.email
    with counted() as work:
        answer = api.post("/v1/auth/login", {"email": email, "password": typed}, format="json")
    assert answer.status_code == (200 if case == "right" else 401)
    assert len(work) == number


@pytest.mark.parametrize(("typed", "number"), [("plain letters ß", 1), (COMPOSED, 2), (MIXED, 3)])
@pytest.mark.parametrize("case", ["right", "wrong", "unknown", "disabled", "no operator"])
def test_the_work_of_a_sign_in_to_the_console_does_too(
    operator: User, case: str, typed: str, number: int
) -> None:
    operator.password = make_password(typed if case != "wrong" else "another one entirely")
    operator.is_active, operator.is_staff = case != "disabled", case != "no operator"
    operator.save()
    email = "nobody@shell.test" if case == "unknown" else operator.email
    with counted() as work:
        answer = Browser().post("/admin/login/", {"username": email, "password": typed})
    assert answer.status_code == (302 if case == "right" else 200)
    assert len(work) == number


class counted:  # noqa: N801 - reads as a verb
    """Lists the texts that argon2 works on."""

    def __enter__(self) -> list[str]:
        work: list[str] = []
        encode, verify = GatedArgon2Hasher.encode, GatedArgon2Hasher.verify

        def encoded(hasher: Any, password: str, salt: str) -> str:
            work.append(password)
            return encode(hasher, password, salt)

        def verified(hasher: Any, password: str, hashed: str) -> bool:
            work.append(password)
            return verify(hasher, password, hashed)

        self.patches = [
            patch.object(GatedArgon2Hasher, "encode", encoded),
            patch.object(GatedArgon2Hasher, "verify", verified),
        ]
        for each in self.patches:
            each.start()
        return work

    def __exit__(self, *_: object) -> None:
        for each in self.patches:
            each.stop()


def test_every_form_is_tried_also_after_one_was_right() -> None:
    for hashed in FORMS:
        with counted() as work:
            assert check_password(MIXED, make_password(hashed))
        # The first is the hash itself.
        assert work[1:] == [COMPOSED, MIXED, DECOMPOSED]


def test_a_change_takes_the_current_one_in_any_form(user: User, by: Actor, now: datetime) -> None:
    User.objects.update(password=make_password(COMPOSED))
    change_password(
        user_id=user.pk, current=DECOMPOSED, new=normalize("NFD", OTHER), by=by, now=now
    )
    assert checked_before(normalize("NFC", OTHER), User.objects.get().password)


def test_a_length_is_that_of_the_form_that_is_hashed(user: User, by: Actor, now: datetime) -> None:
    eleven = normalize("NFD", "äöüßéèêçñáó")
    assert len(eleven) > 12
    with pytest.raises(InvalidRequest) as refusal:
        set_password(user_id=user.pk, password=eleven, by=by, now=now)
    assert "password_too_short" in {fault.code for fault in refusal.value.errors}


def test_the_words_that_a_guesser_tries_have_the_form_of_the_password(
    user: User, organisation: Client, by: Actor, now: datetime
) -> None:
    Client.objects.update(name=normalize("NFD", "Ůúýžáéčřšěňď"))
    with pytest.raises(InvalidRequest) as refusal:
        set_password(user_id=user.pk, password="Ůúýžáéčřšěňď", by=by, now=now)
    assert OF_CONTEXT in refusal.value.errors[0].detail


def test_a_link_and_a_one_time_password_set_one_that_is_right_in_every_form(
    user: User, by: Actor, now: datetime
) -> None:
    make_link(user, kind=PasswordLink.Kind.INVITATION, secret="s" * 43, now=now)
    PasswordLink.objects.update(used_at=None)
    use_link(presented="s" * 43, password=DECOMPOSED, address=None, request_id="", now=now)
    assert enters(user, COMPOSED, now)
    code = set_one_time_password(user_id=user.pk, reason="No mail.", by=by, now=now).password
    given = {"email": user.email, "one_time": code, "password": normalize("NFD", OTHER)}
    # Typed twice, in two forms.
    answer = Browser().post("/account/password", {**given, "again": normalize("NFC", OTHER)})
    assert answer.status_code == 302
    assert enters(user, OTHER, now)


def test_an_operator_signs_in_and_changes_the_own_password_in_any_form(
    operator: User, console: Browser
) -> None:
    operator.password = make_password(COMPOSED)
    operator.save()
    guest = Browser()
    given = {"username": operator.email, "password": DECOMPOSED}
    assert guest.post("/admin/login/", given).status_code == 302
    new = {"new_password1": normalize("NFD", OTHER), "new_password2": OTHER}
    answer = guest.post("/admin/password_change/", {"old_password": MIXED, **new})
    assert answer.status_code == 302, answer.context["form"].errors
    assert checked_before(OTHER, User.objects.get(pk=operator.pk).password)


def test_commands_hash_the_form(user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    typed = iter([DECOMPOSED, COMPOSED])
    monkeypatch.setattr(terminal, "getpass", lambda prompt: next(typed))
    call_command("changepassword", user.email)
    assert checked_before(COMPOSED, User.objects.get(pk=user.pk).password)
    monkeypatch.setenv("DJANGO_SUPERUSER_PASSWORD", DECOMPOSED)
    call_command("createsuperuser", email="new@shell.test", interactive=False)
    assert checked_before(COMPOSED, User.objects.get(email="new@shell.test").password)


# By the number of a public report of the kind.
@pytest.mark.parametrize(
    "password",
    [
        pytest.param("E acute long password 1! é", id="mattermost/mattermost#36877"),
        pytest.param("Straßenbahn fährt über Größe", id="ulsklyc/yuvomi#608"),
        pytest.param("mañana siempre mañana 12", id="usnistgov/800-63-3#301"),
        pytest.param("비밀번호는 길어야 합니다", id="Hangul"),
    ],
)
def test_passwords_of_public_reports(
    api: APIClient, user: User, by: Actor, now: datetime, password: str
) -> None:
    set_password(user_id=user.pk, password=password, by=by, now=now)
    for form in ("NFC", "NFD"):
        given = {"email": user.email, "password": normalize(form, password)}
        assert api.post("/v1/auth/login", given, format="json").status_code == 200
