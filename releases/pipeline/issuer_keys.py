"""Keys of an OpenID Connect issuer, cached in this process.

Senders of tokens control nothing here: the addresses come from the settings, a process queries the issuer at most once
a minute, and an empty or failed answer leaves the keys unchanged.
"""

import json
import logging
import time
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from functools import cache
from threading import Lock
from typing import Any
from urllib.parse import urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from config.platform.env.hosts import is_loopback
from config.platform.problems.problem import ServiceUnavailable
from releases.delivery.fetching import FetchRefused, fetch

DISCOVERY = "/.well-known/openid-configuration"
TIMEOUT_SECONDS = 5.0
LIMIT_BYTES = 256 * 1024
# The shortest time between two queries, and the longest use of an answer.
PAUSE, GOOD_FOR = timedelta(minutes=1), timedelta(hours=1)
# Every issuer supports RS256, and announces other algorithms.
ALWAYS, ANNOUNCED = "RS256", "ES256"
KINDS: Mapping[str, str] = {ALWAYS: "RSA", ANNOUNCED: "EC"}
PUBLIC_MEMBERS = ("kty", "n", "e", "crv", "x", "y")
LEAST_RSA_BITS = 2048

log = logging.getLogger(__name__)

Key = RSAPublicKey | EllipticCurvePublicKey
Keys = Mapping[tuple[str, str], Key]


class IssuerUnavailable(ServiceUnavailable):
    default_detail = "The issuer of identity tokens did not return its keys. Try again in a minute."

    def __init__(self) -> None:
        super().__init__(retry_after=int(PAUSE.total_seconds()))


class _Unusable(Exception):
    """The answer is no set of keys. The message is a code that quotes nothing."""


class IssuerKeys:
    """The known keys of one issuer."""

    def __init__(self, issuer: str) -> None:
        self._issuer = issuer
        self._keys: Keys = {}
        self._asked: datetime | None = None
        self._read: datetime | None = None
        self._asking = Lock()

    def find(self, kid: str, algorithm: str, *, now: datetime) -> Key | None:
        """The key of this id for this algorithm, or None.

        May query the issuer, for at most ten seconds. Raises ``IssuerUnavailable`` until the first good answer.
        """
        if self._is_due(kid, algorithm, now):
            with self._asking:
                # Another thread may have queried meanwhile.
                if self._is_due(kid, algorithm, now):
                    self._ask(now)
        if not self._keys:
            raise IssuerUnavailable
        return self._keys.get((kid, algorithm))

    def _is_due(self, kid: str, algorithm: str, now: datetime) -> bool:
        if self._asked is not None and now - self._asked < PAUSE:
            return False
        return (
            self._read is None or now - self._read > GOOD_FOR or (kid, algorithm) not in self._keys
        )

    def _ask(self, now: datetime) -> None:
        try:
            self._keys = _keys_of(self._issuer)
            self._read = now
        except (FetchRefused, _Unusable) as error:
            cause = error.code if isinstance(error, FetchRefused) else str(error)
            log.warning("issuer_keys_not_read", extra={"reason": cause})
        finally:
            self._asked = now


@cache
def keys_of(issuer: str) -> IssuerKeys:
    """This process's keys of an issuer."""
    return IssuerKeys(issuer)


def is_safe(address: str) -> bool:
    """Returns whether nobody on the network can forge an answer."""
    return urlsplit(address).scheme == "https" or is_loopback(address)


def _keys_of(issuer: str) -> Keys:
    about = _document(f"{issuer.rstrip('/')}{DISCOVERY}")
    address = about.get("jwks_uri")
    if about.get("issuer") != issuer:
        raise _Unusable("names_another_issuer")
    if not isinstance(address, str) or not is_safe(address):
        raise _Unusable("no_safe_address_of_keys")
    announced = about.get("id_token_signing_alg_values_supported")
    algorithms = [ALWAYS]
    if isinstance(announced, list) and ANNOUNCED in announced:
        algorithms.append(ANNOUNCED)
    keys = dict(_usable(_document(address).get("keys"), algorithms))
    if not keys:
        raise _Unusable("no_usable_key")
    return keys


def _document(address: str) -> dict[str, Any]:
    deadline = time.monotonic() + TIMEOUT_SECONDS
    with fetch(address, limit=LIMIT_BYTES, deadline=deadline) as fetched:
        text = b"".join(fetched)
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        raise _Unusable("no_json") from None
    if not isinstance(document, dict):
        raise _Unusable("no_json_object")
    return document


def _usable(given: Any, algorithms: list[str]) -> Iterator[tuple[tuple[str, str], Key]]:
    """Yields the keys that verify one of the algorithms, by id and algorithm; skips others."""
    for jwk in given if isinstance(given, list) else ():
        if not isinstance(jwk, dict) or not isinstance(jwk.get("kid"), str):
            continue
        for algorithm in algorithms:
            fits = jwk.get("kty") == KINDS[algorithm] and jwk.get("alg", algorithm) == algorithm
            if fits and _verifies(jwk) and (key := _key(jwk, algorithm)):
                yield (jwk["kid"], algorithm), key


def _verifies(jwk: Mapping[str, Any]) -> bool:
    """Returns whether a key is for verification, as far as it says what it is for."""
    operations = jwk.get("key_ops", ["verify"])
    return (
        jwk.get("use", "sig") == "sig" and isinstance(operations, list) and "verify" in operations
    )


def _key(jwk: Mapping[str, Any], algorithm: str) -> Key | None:
    public = {name: jwk[name] for name in PUBLIC_MEMBERS if name in jwk}
    try:
        key = jwt.PyJWK(public, algorithm=algorithm).key
    except (jwt.PyJWTError, ValueError, TypeError):
        return None
    if isinstance(key, RSAPublicKey):
        return key if key.key_size >= LEAST_RSA_BITS else None
    # ES256 has one curve.
    is_p256 = isinstance(key, EllipticCurvePublicKey) and key.curve.name == "secp256r1"
    return key if is_p256 else None
