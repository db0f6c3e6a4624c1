"""The table of an attack on access tokens: every writing of an algorithm, a key, a claim and a form that was tried.

``forgeries`` holds the ways that any verifier must refuse; these are many more of each kind, for access tokens alone.
"""

import hashlib
import hmac
import json
import time
import zlib
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Iterator
from typing import Any, NamedTuple

import jwt
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from tests.forgeries import claims_of, forgeries, signed

NONES = ["none", "None", "NONE", "nOnE", "noNe", "NonE", "none\x00", "\u200bnone", " none", "none "]
ALGORITHMS = "RS384 RS512 RS1 PS256 PS384 PS512 ES256 ES384 ES512 ES256K EdDSA Ed25519 HS1 A256GCM dir RSA1_5 rs256"
TYPES = (
    "JWT",
    "jwt",
    "at+JWT",
    "AT+JWT",
    "application/at+jwt",
    "rt+jwt",
    "",
    None,
    1,
    [],
    ["at+jwt"],
    {},
    True,
)
ODD = (
    None,
    True,
    0,
    -1,
    1.5,
    "",
    " ",
    "x",
    "\x00",
    [],
    {},
    [None],
    {"$ne": ""},
    "' OR 1=1 --",
    "9" * 400,
)
EXTENSIONS: tuple[dict[str, Any], ...] = (
    {"crit": ["exp"]}, {"crit": []}, {"crit": None}, {"crit": "exp"}, {"crit": ["b64"], "b64": False},
    {"crit": ["b64"], "b64": True}, {"crit": ["http://example.test/unknown"]},
)  # fmt: skip


class Target(NamedTuple):
    """A token that is good, the name of its key and the key itself, and the keys of an attacker."""

    good: str
    kid: str
    key: RSAPrivateKey
    own: RSAPrivateKey

    @property
    def claims(self) -> dict[str, Any]:
        return claims_of(self.good)


def table(good: str, *, kid: str, key: RSAPrivateKey) -> dict[str, str]:
    """The forgeries by what is wrong with them."""
    own = generate_private_key(public_exponent=65537, key_size=2048)
    target = Target(good, kid, key, own)
    found = forgeries(good, kid=kid, key=key)
    for kind in (_algorithms, _public_keys_as_secrets, _keys, _headers, _claims, _writings):
        found |= {f"{kind.__name__} {what}": token for what, token in kind(target)}
    return found


def _algorithms(target: Target) -> Iterator[tuple[str, str]]:
    good_signature = target.good.rpartition(".")[2]
    empty_mac = _base64(hmac.new(b"", b"", hashlib.sha256).digest())
    for alg in NONES:
        text = _text({"alg": alg}, target)
        for signature in ("", good_signature, empty_mac, "AA"):
            yield f"{alg!r} {signature[:4]}", f"{text}.{signature}"
    for alg in ALGORITHMS.split():
        text = _text({"alg": alg}, target)
        yield f"{alg} with the signature of RS256", f"{text}.{_rs256(text, target.key)}"
    for alg, key in (
        ("RS384", target.key),
        ("RS512", target.key),
        ("PS256", target.key),
        ("PS384", target.key),
        ("PS512", target.key),
        ("ES256", ec.generate_private_key(ec.SECP256R1())),
        ("EdDSA", ed25519.Ed25519PrivateKey.generate()),
    ):
        for named in (alg, "RS256"):
            text = _text({"alg": named}, target)
            signature = jwt.get_algorithm_by_name(alg).sign(text.encode(), key)
            yield f"{alg} that is called {named}", f"{text}.{_base64(signature)}"
    text = _text({}, target)
    sha1 = target.key.sign(text.encode(), padding.PKCS1v15(), hashes.SHA1())
    yield "SHA-1", f"{text}.{_base64(sha1)}"


def _public_keys_as_secrets(target: Target) -> Iterator[tuple[str, str]]:
    public = target.key.public_key()
    numbers, jwk = public.public_numbers(), _jwk(target.key)
    pem = public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    der = public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    pkcs1 = public.public_bytes(Encoding.PEM, PublicFormat.PKCS1)
    modulus = numbers.n.to_bytes((numbers.n.bit_length() + 7) // 8)
    openssh = public.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    writings = {
        "PEM": pem, "PEM without its end": pem.rstrip(), "PEM of Windows": pem.replace(b"\n", b"\r\n"),
        "PEM in one line": pem.replace(b"\n", b""), "PEM with NUL": pem + b"\0",
        "PEM without its frame": b"".join(pem.splitlines()[1:-1]), "DER": der, "DER in base64": b64encode(der),
        "PKCS1": pkcs1, "PKCS1 without its end": pkcs1.rstrip(), "the modulus": modulus,
        "the modulus in base64": jwk["n"].encode(), "the modulus in decimal": str(numbers.n).encode(),
        "OpenSSH": openssh, "JWK": json.dumps(jwk).encode(),
        "JWK in one line": json.dumps(jwk, separators=(",", ":")).encode(), "kid": target.kid.encode(), "nothing": b"",
    }  # fmt: skip
    for what, secret in writings.items():
        for bits in (256, 384, 512):
            text = _text({"alg": f"HS{bits}"}, target)
            mac = hmac.new(secret, text.encode(), f"sha{bits}").digest()
            yield f"{what}, HS{bits}", f"{text}.{_base64(mac)}"


def _keys(target: Target) -> Iterator[tuple[str, str]]:
    kids = (
        None, 0, True, 1.5, [], {}, [target.kid], {"kid": target.kid}, "", " ", f" {target.kid}", f"{target.kid} ",
        target.kid.lower(), target.kid[:-1], f"{target.kid}\x00", f"{target.kid}=", "../../../../dev/null",
        "/dev/null", "file:///dev/null", "http://127.0.0.1:9/key.pem", "' OR '1'='1", "x' UNION SELECT 'AA' --",
        "| sleep 5", "$(sleep 5)", "%00", "\u202e", "A" * 2000,
    )  # fmt: skip
    for number, kid in enumerate(kids):
        for whose, key in (("the service's", target.key), ("the attacker's", target.own)):
            yield f"{number} by {whose} key", signed(target.claims, key, None, kid=kid)
    jwk = _jwk(target.own)
    der = target.own.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    for kid in (target.kid, "attackers"):
        for member, value in (
            ("jwk", jwk),
            ("jwk", {**jwk, "kid": kid}),
            ("jku", "http://127.0.0.1:9/keys.json"),
            ("jku", "file:///dev/stdin"),
            ("x5u", "http://127.0.0.1:9/chain.pem"),
            ("x5c", [b64encode(der).decode()]),
        ):
            token = signed(target.claims, target.own, kid, **{member: value})
            yield f"{member} {str(value)[:40]} of {kid[:9]}", token


def _headers(target: Target) -> Iterator[tuple[str, str]]:
    for kind in TYPES:
        yield f"typ {kind!r}", signed(target.claims, target.key, target.kid, typ=kind)
    for members in EXTENSIONS:
        yield str(members), signed(target.claims, target.key, target.kid, **members)
    for text in (
        f'{{"alg":"none","alg":"RS256","typ":"at+jwt","kid":"{target.kid}"}}',
        f'{{"alg":"RS256","alg":"none","typ":"at+jwt","kid":"{target.kid}"}}',
        f'{{"alg":"RS256","typ":"at+jwt","kid":"x","kid":"{target.kid}"}}',
    ):
        signing_input = f"{_base64(text.encode())}.{_part(target.claims)}"
        yield f"twice: {text[:30]}", f"{signing_input}.{_rs256(signing_input, target.own)}"


def _claims(target: Target) -> Iterator[tuple[str, str]]:
    claims, now = target.claims, int(time.time())
    right = {"ver": (0,)}
    for name in ("iss", "sub", "sid", "ver", "exp", "iat"):
        for value in ODD:
            if type(value) is not int or value not in right.get(name, ()):
                wrong = {**claims, name: value}
                yield f"{name} {value!r:.20}", signed(wrong, target.key, target.kid)
    for what, change in (
        ("a year", {"exp": now + 365 * 86400}),
        ("a second too long", {"exp": claims["iat"] + 3601}),
        ("for ever", {"exp": 10**400}),
        ("from long ago", {"iat": 0, "exp": now + 60}),
        ("from the future", {"iat": now + 7200, "exp": now + 10800}),
        ("not yet", {"nbf": now + 7200}),
        ("over", {"iat": now - 7200, "exp": now - 3600}),
        ("another issuer", {"iss": f"{claims['iss']}.evil.test"}),
        ("an issuer with a slash", {"iss": f"{claims['iss']}/"}),
        ("two issuers", {"iss": [claims["iss"], "x"]}),
        ("another epoch", {"ver": claims["ver"] + 1}),
        ("another person", {"sub": claims["sid"]}),
        ("another session", {"sid": claims["sub"]}),
    ):
        yield what, signed({**claims, **change}, target.key, target.kid)


def _writings(target: Target) -> Iterator[tuple[str, str]]:
    head, payload, signature = target.good.split(".")
    header = {"alg": "RS256", "typ": "at+jwt", "kid": target.kid}
    for coding in ("utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-8-sig"):
        odd_head, odd_claims = (
            _base64(json.dumps(each).encode(coding)) for each in (header, target.claims)
        )
        for what, text in (
            ("header", f"{odd_head}.{payload}"),
            ("claims", f"{_part(header)}.{odd_claims}"),
        ):
            yield f"{what} in {coding}", f"{text}.{_rs256(text, target.key)}"
    nested = f"{_part({**header, 'cty': 'JWT'})}.{_base64(target.good.encode())}"
    packed = _base64(zlib.compress(json.dumps(target.claims).encode()))
    zipped = f"{_part({**header, 'zip': 'DEF'})}.{packed}"
    deep = _base64(b'{"a":' * 900 + b"1" + b"}" * 900)
    parts = {"protected": head, "payload": payload, "signature": signature}
    yield "nested", f"{nested}.{_rs256(nested, target.key)}"
    yield "zipped", f"{zipped}.{_rs256(zipped, target.key)}"
    yield "deep", f"{_part(header)}.{deep}.{signature}"
    yield "JSON form", json.dumps(parts)
    yield "JSON form in base64", _base64(json.dumps(parts).encode())
    yield (
        "JWE",
        f"{_part({'alg': 'RSA-OAEP', 'enc': 'A256GCM', 'kid': target.kid})}.{payload}..{payload}.{signature}",
    )
    yield (
        "JWE that is dir",
        f"{_part({'alg': 'dir', 'enc': 'A256GCM'})}..{payload}.{payload}.{signature}",
    )
    yield "detached", f"{head}..{signature}"
    # Signatures that a lax reader of PKCS#1 v1.5 lets pass: a number and not a padded hash.
    size = target.key.key_size // 8
    for what, number in (("zero", 0), ("one", 1), ("ones", 256**size - 1)):
        yield f"signature {what}", f"{head}.{payload}.{_base64(number.to_bytes(size))}"
    digest = hashlib.sha256(f"{head}.{payload}".encode()).digest()
    short = (b"\0\1" + b"\xff" * 8 + b"\0" + digest).ljust(size, b"\0")
    yield "signature with a short padding", f"{head}.{payload}.{_base64(short)}"
    yield "signature that is cut", f"{head}.{payload}.{signature[:-4]}"
    yield "signature that is doubled", f"{head}.{payload}.{signature}{signature}"


def _text(header: dict[str, Any], target: Target) -> str:
    members = {"alg": "RS256", "typ": "at+jwt", "kid": target.kid, **header}
    return f"{_part(members)}.{_part(target.claims)}"


def _rs256(text: str, key: RSAPrivateKey) -> str:
    return _base64(jwt.get_algorithm_by_name("RS256").sign(text.encode(), key))


def _jwk(key: RSAPrivateKey) -> dict[str, Any]:
    jwk: dict[str, Any] = jwt.get_algorithm_by_name("RS256").to_jwk(  # type: ignore[attr-defined]
        key.public_key(), as_dict=True
    )
    return jwk


def _part(value: Any) -> str:
    return _base64(json.dumps(value).encode())


def _base64(value: bytes) -> str:
    return urlsafe_b64encode(value).rstrip(b"=").decode()
