"""Access tokens that must not be believed, by what is wrong with them: the known ways to cheat a verifier of JWTs."""

import hashlib
import hmac
import json
import time
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from typing import Any
from uuid import uuid4

import jwt
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

HOUR = 3600
ELSEWHERE = "http://127.0.0.1:9/keys.json"
JUNK = "A" * 43


def claims_of(token: str) -> dict[str, Any]:
    claims: dict[str, Any] = jwt.decode(token, options={"verify_signature": False})
    return claims


def signed(claims: Mapping[str, Any], key: RSAPrivateKey, named: Any, **header: Any) -> str:
    """A token by any claims and headers, also such as no library would write."""
    head = {"alg": "RS256", "typ": "at+jwt", **({"kid": named} if named else {}), **header}
    signing_input = f"{_part(head)}.{_part(claims)}"
    signature = jwt.get_algorithm_by_name("RS256").sign(signing_input.encode(), key)
    return f"{signing_input}.{_base64(signature)}"


def forgeries(good: str, *, kid: str, key: RSAPrivateKey) -> dict[str, str]:
    """Tokens made of a good one, with the very key of the service where that makes them harder to tell."""
    return {
        **_of_other_algorithms(good, kid, key),
        **_of_other_keys(good, kid, key),
        **_of_other_claims(good, kid, key),
        **_of_no_form(good, kid, key),
    }


def _of_other_algorithms(good: str, kid: str, key: RSAPrivateKey) -> dict[str, str]:
    claims, public = claims_of(good), key.public_key()
    found = {}
    for name in ("none", "None", "NONE", "nOnE", ""):
        head = _part({"alg": name, "typ": "at+jwt", "kid": kid})
        found[f"alg {name!r}"] = f"{head}.{_part(claims)}."
        found[f"alg {name!r}, signed"] = f"{head}.{_part(claims)}.{good.rpartition('.')[2]}"
    spki, pkcs1 = PublicFormat.SubjectPublicKeyInfo, PublicFormat.PKCS1
    for form, encoding, shape in (
        ("PEM", Encoding.PEM, spki),
        ("DER", Encoding.DER, spki),
        ("PKCS1 PEM", Encoding.PEM, pkcs1),
        ("PKCS1 DER", Encoding.DER, pkcs1),
    ):
        secret = public.public_bytes(encoding, shape)
        for name, digest in (("HS256", hashlib.sha256), ("HS512", hashlib.sha512)):
            text = f"{_part({'alg': name, 'typ': 'at+jwt', 'kid': kid})}.{_part(claims)}"
            mac = hmac.new(secret, text.encode(), digest).digest()
            found[f"{name} by the public key as {form}"] = f"{text}.{_base64(mac)}"
    for name in ("RS512", "PS256"):
        text = f"{_part({'alg': name, 'typ': 'at+jwt', 'kid': kid})}.{_part(claims)}"
        signature = jwt.get_algorithm_by_name(name).sign(text.encode(), key)
        found[name] = f"{text}.{_base64(signature)}"
    found["no alg"] = signed(claims, key, kid, alg=None)
    found["alg as a list"] = signed(claims, key, kid, alg=["RS256"])
    return found


def _of_other_keys(good: str, kid: str, key: RSAPrivateKey) -> dict[str, str]:
    claims = claims_of(good)
    own = generate_private_key(public_exponent=65537, key_size=2048)
    jwk = jwt.get_algorithm_by_name("RS256").to_jwk(own.public_key(), as_dict=True)  # type: ignore[attr-defined]
    return {
        "another's key": signed(claims, own, kid),
        "an unknown kid": signed(claims, own, JUNK),
        "a kid that is no name": signed(claims, own, "../../etc/passwd"),
        "a kid that is a number": signed(claims, key, 7),
        "no kid": signed(claims, key, None),
        "jwk": signed(claims, own, kid, jwk=jwk),
        "jwk and its own kid": signed(claims, own, JUNK, jwk={**jwk, "kid": JUNK}),
        "jku": signed(claims, own, JUNK, jku=ELSEWHERE),
        "jku of a known kid": signed(claims, own, kid, jku=ELSEWHERE),
        "x5u": signed(claims, own, kid, x5u=ELSEWHERE),
    }


def _of_other_claims(good: str, kid: str, key: RSAPrivateKey) -> dict[str, str]:
    claims, now = claims_of(good), int(time.time())
    wrong: dict[str, dict[str, Any]] = {
        "another issuer": {"iss": "https://elsewhere.test"},
        "a list of issuers": {"iss": [claims["iss"]]},
        "sub as a number": {"sub": 7},
        "sub as a list": {"sub": [claims["sub"]]},
        "sub that is no uuid": {"sub": "ada"},
        "sid that is null": {"sid": None},
        "sid that is no uuid": {"sid": "' OR 1=1 --"},
        "ver as a text": {"ver": "0"},
        "ver as a truth": {"ver": False},
        "ver that is endless": {"ver": float("inf")},
        "exp as a text": {"exp": "soon"},
        "exp that is endless": {"exp": float("inf")},
        "exp that is no number": {"exp": float("nan")},
        "iat of tomorrow": {"iat": now + 24 * HOUR},
        "iat as a text": {"iat": "now"},
        "nbf of tomorrow": {"nbf": now + 24 * HOUR},
    }
    found = {name: signed({**claims, **change}, key, kid) for name, change in wrong.items()}
    for name in ("iss", "sub", "sid", "ver", "exp", "iat"):
        rest = {each: value for each, value in claims.items() if each != name}
        found[f"no {name}"] = signed(rest, key, kid)
    head, _, signature = good.split(".")
    changed = _part({**claims, "sub": str(uuid4())})
    found["claims that were changed"] = f"{head}.{changed}.{signature}"
    return found


def _of_no_form(good: str, kid: str, key: RSAPrivateKey) -> dict[str, str]:
    claims = claims_of(good)
    head, payload, signature = good.split(".")
    deep = urlsafe_b64encode(b"[" * 2000).decode().rstrip("=")
    return {
        "typ JWT": signed(claims, key, kid, typ="JWT"),
        "no typ": signed(claims, key, kid, typ=None),
        "crit": signed(claims, key, kid, crit=["exp"]),
        "crit that is known": signed(claims, key, kid, crit=["b64"], b64=True),
        "crit that is empty": signed(claims, key, kid, crit=[]),
        "payload apart": signed(claims, key, kid, crit=["b64"], b64=False),
        "two parts": f"{head}.{payload}",
        "five parts": f"{good}.{head}.{payload}",
        "no signature": f"{head}.{payload}.",
        "no base64": f"{head}.{payload}.!!!!",
        "base64 with other ends": f"{good}=",
        "a header that is no JSON": f"{_base64(b'{')}.{payload}.{signature}",
        "a header that is a list": f"{_part([])}.{payload}.{signature}",
        "a header that is no text": f"{_base64(bytes([255, 254]))}.{payload}.{signature}",
        "a header that is deep": f"{deep}.{payload}.{signature}",
        "a payload that is a list": signed([], key, kid),  # type: ignore[arg-type]
        "junk": "\u00e9" * 30,
        "long": f"{head}.{'A' * 7000}.{signature}",
    }


def _part(value: Any) -> str:
    return _base64(json.dumps(value).encode())


def _base64(value: bytes) -> str:
    return urlsafe_b64encode(value).rstrip(b"=").decode()
