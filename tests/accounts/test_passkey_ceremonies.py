"""Ceremonies of passkeys as a hostile browser holds them: by a key in software, so that every member can be wrong."""

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from datetime import datetime
from hashlib import sha256
from secrets import token_bytes
from threading import Thread
from typing import Any

import cbor2
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from django.conf import settings as configured
from django.db import connection, transaction
from django_otp_webauthn.models import WebAuthnCredential
from pytest_django.fixtures import Settings

from accounts.audit import Actor
from accounts.factors.devices import has_factor
from accounts.factors.setting_up import make_set_up_code, reset
from accounts.models import AuditEvent, User
from tests.conftest import PASSWORD, Browser
from tests.hostile import RAW, altered, encoded
from tests.races import race
from tests.waiting import eventually

PRESENT, WITH_KEY = 0x01, 0x40


def plain(text: str) -> bytes:
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))


def coded(raw: bytes) -> str:
    return urlsafe_b64encode(raw).rstrip(b"=").decode()


class SoftwareKey:
    """A passkey whose every statement the test chooses."""

    def __init__(self) -> None:
        self.id, self.uses = token_bytes(16), 0
        self.private = ec.generate_private_key(ec.SECP256R1())
        self.origin = configured.OTP_WEBAUTHN_ALLOWED_ORIGINS[0]
        self.rp = configured.OTP_WEBAUTHN_RP_ID
        # Further members that a browser states.
        self.stated: dict[str, Any] = {"crossOrigin": False}

    def made(self, options: dict[str, Any]) -> dict[str, Any]:
        """The answer of a registration."""
        point = self.private.public_key().public_numbers()
        key = {1: 2, 3: -7, -1: 1, -2: point.x.to_bytes(32), -3: point.y.to_bytes(32)}
        known = bytes(16) + len(self.id).to_bytes(2) + self.id + cbor2.dumps(key)
        data = self._data(PRESENT | WITH_KEY) + known
        stated = cbor2.dumps({"fmt": "none", "attStmt": {}, "authData": data})
        client = self._client("webauthn.create", options["challenge"])
        return self._answer(clientDataJSON=client, attestationObject=stated)

    def used(self, options: dict[str, Any]) -> dict[str, Any]:
        """The answer of an authentication."""
        self.uses += 1
        data, client = self._data(PRESENT), self._client("webauthn.get", options["challenge"])
        signature = self.private.sign(data + sha256(client).digest(), ec.ECDSA(SHA256()))
        return self._answer(clientDataJSON=client, authenticatorData=data, signature=signature)

    def _data(self, flags: int) -> bytes:
        return sha256(self.rp.encode()).digest() + bytes([flags]) + self.uses.to_bytes(4)

    def _client(self, kind: str, challenge: str) -> bytes:
        own = {"type": kind, "challenge": challenge, "origin": self.origin}
        return json.dumps({**own, **self.stated}).encode()

    def _answer(self, **response: bytes) -> dict[str, Any]:
        texts = {name: coded(value) for name, value in response.items()}
        known = {"id": coded(self.id), "rawId": coded(self.id)}
        return {**known, "type": "public-key", "response": texts, "clientExtensionResults": {}}


def begin(browser: Browser, ceremony: str) -> dict[str, Any]:
    answer = browser.post(f"/admin/passkeys/{ceremony}-begin/")
    assert answer.status_code == 200, answer.content
    options: dict[str, Any] = json.loads(answer.content)
    return options


def complete(browser: Browser, ceremony: str, answer: dict[str, Any]) -> int:
    address = f"/admin/passkeys/{ceremony}-complete/"
    return browser.post(address, answer, content_type="application/json").status_code


def is_in(browser: Browser) -> bool:
    return browser.get("/admin/").status_code == 200


def signed_in(user: User) -> Browser:
    """A browser that has given the password."""
    browser = Browser()
    browser.post("/admin/login/", {"username": user.email, "password": PASSWORD})
    return browser


Sets = Callable[[User], tuple[Browser, SoftwareKey]]


@pytest.fixture
def sets_up(settings: Settings, by: Actor, now: datetime) -> Sets:
    """Sets a passkey up for an operator; gives the browser and the key."""
    settings.OPERATOR_SECOND_FACTOR = True
    settings.RATE_LIMITS = {"auth.ip": "600/m"}

    def set_up(user: User) -> tuple[Browser, SoftwareKey]:
        browser, key = signed_in(user), SoftwareKey()
        code = make_set_up_code(user_id=user.pk, by=by, now=now)
        browser.post("/admin/second-factor/set-up/", {"code": code})
        made = key.made(begin(browser, "registration"))
        assert complete(browser, "registration", made) == 200
        latest = AuditEvent.objects.filter(action__startswith="operator:").order_by("-pk")[:2]
        assert {each.action for each in latest} == {"operator:factor_added", "operator:signed_in"}
        assert is_in(browser)
        return browser, key

    return set_up


@pytest.mark.django_db
def test_a_passkey_proves_its_own_operator_once_for_each_challenge(
    sets_up: Sets, operator: User
) -> None:
    _, key = sets_up(operator)
    browser = signed_in(operator)
    assert not is_in(browser)
    answer = key.used(begin(browser, "authentication"))
    assert complete(signed_in(operator), "authentication", answer) == 400
    assert complete(browser, "authentication", answer) == 200
    assert is_in(browser)
    replayed = signed_in(operator)
    begin(replayed, "authentication")
    assert complete(replayed, "authentication", answer) == 422
    assert complete(replayed, "authentication", answer) == 400
    assert not is_in(replayed)


@pytest.mark.django_db
def test_a_passkey_of_another_operator_proves_nothing(sets_up: Sets, operator: User) -> None:
    other = User.objects.create_superuser("other@shell.test", PASSWORD)
    sets_up(operator)
    _, theirs = sets_up(other)
    browser = signed_in(operator)
    answer = theirs.used(begin(browser, "authentication"))
    answer["response"]["userHandle"] = coded(operator.pk.bytes)
    assert complete(browser, "authentication", answer) in {403, 404, 422}
    assert not is_in(browser)
    assert AuditEvent.objects.filter(action="operator:factor_refused").count() == 1


@pytest.mark.django_db
def test_forged_answers_of_a_passkey_prove_nothing(sets_up: Sets, operator: User) -> None:
    _, key = sets_up(operator)
    for name, value in (
        ("origin", "https://elsewhere.test"),
        ("origin", f"{key.origin}.elsewhere.test"),
        ("rp", "elsewhere.test"),
        ("uses", -1),
        ("private", ec.generate_private_key(ec.SECP256R1())),
    ):
        browser, was = signed_in(operator), getattr(key, name)
        setattr(key, name, value)
        # A counter that does not move is that of a copy.
        WebAuthnCredential.objects.update(sign_count=5 if name == "uses" else 0)
        answer = key.used(begin(browser, "authentication"))
        assert complete(browser, "authentication", answer) == 422, name
        assert not is_in(browser)
        setattr(key, name, was)


@pytest.mark.django_db
def test_a_password_alone_registers_no_passkey(sets_up: Sets, operator: User) -> None:
    sets_up(operator)
    browser, key = signed_in(operator), SoftwareKey()
    options = begin(browser, "authentication")
    assert browser.post("/admin/passkeys/registration-begin/").status_code == 403
    assert complete(browser, "registration", key.made(options)) == 403
    assert WebAuthnCredential.objects.count() == 1


@pytest.mark.django_db
def test_a_statement_made_within_a_page_of_another_origin_is_refused(
    sets_up: Sets, operator: User
) -> None:
    first, key = sets_up(operator)
    key.stated = {"crossOrigin": True, "topOrigin": "https://elsewhere.test"}
    browser = signed_in(operator)
    assert complete(browser, "authentication", key.used(begin(browser, "authentication"))) == 422
    assert not is_in(browser)
    another = SoftwareKey()
    another.stated = {"crossOrigin": True}
    assert complete(first, "registration", another.made(begin(first, "registration"))) == 422
    assert WebAuthnCredential.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_one_of_several_registrations_on_one_challenge_is_stored_without_a_server_error(
    sets_up: Sets, operator: User
) -> None:
    browser, _ = sets_up(operator)
    made = SoftwareKey().made(begin(browser, "registration"))

    def add() -> int:
        # A browser for each, whose requests have nothing of another's: they share the session alone.
        tab = Browser(raise_request_exception=False)
        name = configured.SESSION_COOKIE_NAME
        tab.cookies[name] = browser.cookies[name].value
        return complete(tab, "registration", made)

    codes = race(*[add] * 6)
    assert codes.count(200) == 1
    # The one that is stored renews the session, so one that comes after it has to sign in.
    assert set(codes) <= {200, 302, 400, 403, 422}, codes
    assert WebAuthnCredential.objects.count() == 2


@pytest.mark.django_db(transaction=True)
def test_a_reset_leaves_no_passkey_that_was_being_added(
    sets_up: Sets, operator: User, by: Actor, now: datetime
) -> None:
    browser, _ = sets_up(operator)
    made, codes = SoftwareKey().made(begin(browser, "registration")), list[int]()

    def add() -> None:
        codes.append(complete(browser, "registration", made))
        connection.close()

    adding = Thread(target=add, daemon=True)
    with transaction.atomic():
        reset(user_id=operator.pk, reason="Lost.", by=by, now=now)
        adding.start()
        _until_somebody_waits_or(adding)
    adding.join(100)
    assert codes == [403]
    assert not has_factor(operator.pk)


def _until_somebody_waits_or(ended: Thread) -> None:
    """Until a connection waits for a lock, or the thread needs none."""

    def waits() -> bool:
        with connection.cursor() as cursor:
            # A backend that waits here holds some lock of this database, too.
            cursor.execute(
                "SELECT count(*) FROM pg_locks WHERE NOT granted AND pid IN (SELECT pid FROM pg_locks"
                " WHERE database = (SELECT oid FROM pg_database WHERE datname = current_database()))"
            )
            return bool(cursor.fetchone()[0])

    eventually(lambda: not ended.is_alive() or waits())


@pytest.mark.django_db
def test_a_body_that_cannot_be_read_is_refused_and_changes_nothing(
    sets_up: Sets, operator: User
) -> None:
    browser, key = sets_up(operator)
    browser.raise_request_exception = False
    for ceremony in ("registration", "authentication"):
        for step in ("begin", "complete"):
            address = f"/admin/passkeys/{ceremony}-{step}/"
            for name, body in RAW.items():
                begin(browser, ceremony)
                answer: Any = browser.generic(
                    "POST", address, body, content_type="application/json"
                )
                # Steps that begin a ceremony ignore a body.
                known = {400, 413, 200 if step == "begin" else 422}
                assert answer.status_code in known, (address, name)
    assert list(WebAuthnCredential.objects.values_list("credential_id")) == [(key.id,)]
    assert is_in(browser)


@pytest.mark.full
@pytest.mark.django_db
@pytest.mark.parametrize("ceremony", ["registration", "authentication"])
def test_a_hostile_value_in_a_statement_is_no_error_of_ours(
    sets_up: Sets, operator: User, ceremony: str
) -> None:
    browser, known = sets_up(operator)
    browser.raise_request_exception = False
    key = SoftwareKey() if ceremony == "registration" else known
    options = begin(browser, ceremony)
    (kept,) = (name for name in dict(browser.session.items()) if name.endswith("_state"))
    state = browser.session[kept]
    statement = key.made(options) if ceremony == "registration" else key.used(options)
    statement["response"] |= {"transports": ["usb"], "userHandle": coded(operator.pk.bytes)}
    statement |= {"clientExtensionResults": {"credProps": {"rk": True}}}
    inside = [
        ("clientDataJSON", each)
        for each in (*RAW.values(), b'{"challenge": 1}', b'{"type": [], "tokenBinding": 5}')
    ]
    inside += [
        (name, each)
        for name in ("attestationObject", "authenticatorData", "signature")
        for each in (b"", b"\xff" * 40, b"\x81" * 40_000, bytes(37), bytes(32) + b"\xff" * 5)
    ]
    for what, changed in [
        *altered(statement),
        *(
            (
                f"{name}: {each[:9]!r}",
                {**statement, "response": {**statement["response"], name: coded(each)}},
            )
            for name, each in inside
            if name in statement["response"]
        ),
    ]:
        session = browser.session
        session[kept] = state
        session.save()
        address = f"/admin/passkeys/{ceremony}-complete/"
        answer: Any = browser.generic(
            "POST", address, encoded(changed), content_type="application/json"
        )
        assert answer.status_code != 500, what
        WebAuthnCredential.objects.exclude(credential_id=known.id).delete()
