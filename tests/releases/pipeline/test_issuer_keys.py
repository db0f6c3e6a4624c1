"""Keys of an issuer: read when something is unknown, never oftener than once a minute, never lost to a bad answer."""

import json
import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from releases.pipeline import issuer_keys
from releases.pipeline.issuer_keys import DISCOVERY, IssuerKeys, IssuerUnavailable
from tests.races import race
from tests.releases.issuer import Issuer, new_ec, new_rsa, public
from tests.standins.cdn import Answer, Cdn, cut_off, status, trickle, whole

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)


@pytest.fixture
def issuer(cdn: Cdn) -> Issuer:
    return Issuer(cdn)


@pytest.fixture
def keys(issuer: Issuer) -> IssuerKeys:
    return IssuerKeys(issuer.url)


def same(found: Any, private: Any) -> bool:
    return bool(found.public_numbers() == private.public_key().public_numbers())


def test_a_key_is_read_once_and_kept(issuer: Issuer, keys: IssuerKeys, now: datetime) -> None:
    for _ in range(3):
        assert same(keys.find("first", "RS256", now=now), issuer.keys["first"])
    assert issuer.times_asked == 1


def test_unknown_keys_have_the_issuer_asked_once_a_minute(
    issuer: Issuer, keys: IssuerKeys, now: datetime
) -> None:
    for second in range(60):
        assert keys.find(f"unknown {second}", "RS256", now=now + timedelta(seconds=second)) is None
    assert issuer.times_asked == 1
    issuer.keys["second"] = new_rsa()
    issuer.publish()
    assert same(keys.find("second", "RS256", now=now + MINUTE), issuer.keys["second"])
    assert issuer.times_asked == 2


def test_one_of_many_concurrent_callers_requests_the_issuers_keys(
    issuer: Issuer, keys: IssuerKeys, now: datetime
) -> None:
    found = race(*[lambda: keys.find("first", "RS256", now=now)] * 8)
    assert all(same(each, issuer.keys["first"]) for each in found)
    assert issuer.times_asked == 1


def test_a_key_that_was_withdrawn_serves_for_an_hour_at_most(
    issuer: Issuer, keys: IssuerKeys, now: datetime
) -> None:
    keys.find("first", "RS256", now=now)
    issuer.keys = {"second": new_rsa()}
    issuer.publish()
    assert keys.find("first", "RS256", now=now + HOUR) is not None
    assert keys.find("first", "RS256", now=now + HOUR + MINUTE) is None


def _without(stop: threading.Event, issuer: Issuer) -> dict[str, Answer | bytes]:
    """Answers that give no key."""
    weak = public(new_rsa(1024), "first")
    sets: dict[str, Any] = {
        "empty": {"keys": []},
        "no keys": {},
        "no list": {"keys": {"first": public(new_rsa(), "first")}},
        "no object": [public(new_rsa(), "first")],
        "no public key": {"keys": [{"kty": "RSA", "kid": "first", "n": "AQAB"}]},
        "weak": {"keys": [weak]},
        "of another use": {"keys": [public(new_rsa(), "first", use="enc")]},
        "of another algorithm": {"keys": [public(new_rsa(), "first", alg="RS512")]},
        "symmetric": {"keys": [{"kty": "oct", "kid": "first", "k": "AAAA"}]},
        "not announced": {"keys": [public(new_ec(), "first")]},
        "without an id": {"keys": [{**public(new_rsa(), ""), "kid": None}, "first"]},
    }
    good = json.dumps(issuer.key_set()).encode()
    return {
        **{name: json.dumps(each).encode() for name, each in sets.items()},
        "no JSON": b"<html>",
        "too deep": b"[" * 100_000,
        "too large": good + b" " * issuer_keys.LIMIT_BYTES,
        "cut off": cut_off(good, promised=len(good) + 1),
        "away": status(503),
        "elsewhere": status(302, Location="/other.json"),
        "encoded": whole(good, Content_Encoding="gzip"),
        "slow": trickle(stop),
        "slow to begin": trickle(stop, head=True),
    }


def test_an_answer_without_keys_never_replaces_those_that_are_known(
    issuer: Issuer,
    keys: IssuerKeys,
    now: datetime,
    stop: threading.Event,
    patience: Callable[[str], None],
) -> None:
    keys.find("first", "RS256", now=now)
    for number, (name, answer) in enumerate(_without(stop, issuer).items(), 1):
        issuer.serve_keys(answer)
        patience(name)
        later = now + number * 2 * HOUR
        assert same(keys.find("first", "RS256", now=later), issuer.keys["first"]), name
        assert issuer.times_asked == number + 1, name


def test_an_issuer_that_never_answered_makes_nobody_a_stranger(
    issuer: Issuer, now: datetime, stop: threading.Event, patience: Callable[[str], None]
) -> None:
    for name, answer in _without(stop, issuer).items():
        keys = IssuerKeys(issuer.url)
        issuer.serve_keys(answer)
        patience(name)
        with pytest.raises(IssuerUnavailable) as refusal:
            keys.find("first", "RS256", now=now)
        patience("the others")
        assert refusal.value.headers == {"Retry-After": "60"}, name
        issuer.publish()
        with pytest.raises(IssuerUnavailable):
            keys.find("first", "RS256", now=now + MINUTE / 2)
        assert keys.find("first", "RS256", now=now + MINUTE) is not None


@pytest.fixture
def patience(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Little with what is slow, and much with all others."""

    def have(name: str) -> None:
        seconds = 1.5 if name.startswith("slow") else 60.0
        monkeypatch.setattr(issuer_keys, "TIMEOUT_SECONDS", seconds)

    have("the others")
    return have


@pytest.mark.parametrize(
    "about",
    [
        {"issuer": "https://another.test"},
        {"issuer": None},
        {"jwks_uri": None},
        {"jwks_uri": "http://keys.test/keys.json"},
        {"jwks_uri": "file:///etc/passwd"},
    ],
)
def test_the_discovery_document_must_name_its_issuer_and_safe_addresses(
    issuer: Issuer, keys: IssuerKeys, now: datetime, about: dict[str, Any]
) -> None:
    issuer.publish(**about)
    with pytest.raises(IssuerUnavailable):
        keys.find("first", "RS256", now=now)
    assert issuer.host.asked == [DISCOVERY]


@pytest.mark.parametrize(
    ("curve", "found"), [(ec.SECP256R1, True), (ec.SECP384R1, False), (ec.SECP256K1, False)]
)
def test_es256_is_taken_where_the_issuer_announces_it(
    issuer: Issuer, now: datetime, curve: Callable[[], ec.EllipticCurve], found: bool
) -> None:
    issuer.keys["second"] = new_ec(curve())
    issuer.publish(id_token_signing_alg_values_supported=["ES256", "RS256", "HS256", "none"])
    keys = IssuerKeys(issuer.url)
    assert (keys.find("second", "ES256", now=now) is not None) is found
    assert keys.find("first", "RS256", now=now) is not None
    assert keys.find("first", "ES256", now=now) is None
    assert keys.find("second", "RS256", now=now) is None


def test_an_address_of_keys_may_have_a_query(issuer: Issuer, now: datetime) -> None:
    issuer.host.files["/keys?v=2"] = issuer.host.files["/keys.json"]
    issuer.publish(jwks_uri=f"{issuer.url}/keys?v=2")
    assert IssuerKeys(issuer.url).find("first", "RS256", now=now) is not None


@pytest.mark.parametrize(
    ("operations", "found"),
    [
        (["verify"], True),
        (["encrypt", "verify"], True),
        (["encrypt"], False),
        (["sign"], False),
        ([], False),
        ("verify", False),
        (None, False),
    ],
)
def test_a_key_verifies_only_where_its_operations_say_so(
    issuer: Issuer, keys: IssuerKeys, now: datetime, operations: Any, found: bool
) -> None:
    other = public(issuer.keys["first"], "other", key_ops=operations)
    issuer.serve_keys(json.dumps({"keys": [public(issuer.keys["first"], "first"), other]}).encode())
    assert (keys.find("other", "RS256", now=now) is not None) is found
