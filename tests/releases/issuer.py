"""An OpenID Connect issuer on loopback, as a pipeline's host runs one: its keys, and tokens of runs."""

import json
from datetime import datetime
from typing import Any
from uuid import uuid4

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from tests.standins.cdn import Answer, Cdn

DISCOVERY, KEYS = "/.well-known/openid-configuration", "/keys.json"
AUDIENCE = "https://shell.test"
REQUIRED = {
    "repository": "acme/shell",
    "repository_owner_id": "1234",
    "ref": "refs/heads/main",
    "runner_environment": "github-hosted",
}
MINUTE = 60


class Issuer:
    """`host` serves what it publishes; `keys` are the private ones by their ids, the first of which signs."""

    def __init__(self, host: Cdn) -> None:
        self.host = host
        self.url = host.url
        self.keys: dict[str, Any] = {"first": new_rsa()}
        self.publish()

    def publish(self, **about: Any) -> None:
        """Serves the keys of now, and `about` beside what it says of itself."""
        document = {"issuer": self.url, "jwks_uri": f"{self.url}{KEYS}", **about}
        self.host.files[DISCOVERY] = json.dumps(document).encode()
        self.host.files[KEYS] = json.dumps(self.key_set()).encode()

    def key_set(self) -> dict[str, Any]:
        return {"keys": [public(each, kid) for kid, each in self.keys.items()]}

    def serve_keys(self, keys: Answer | bytes) -> None:
        self.host.files[KEYS] = keys

    @property
    def times_asked(self) -> int:
        return self.host.asked.count(KEYS)

    def claims(self, now: datetime, **other: Any) -> dict[str, Any]:
        """Returns the claims of a run that may publish; a claim that is None is left out."""
        at = int(now.timestamp())
        claims = {
            "iss": self.url,
            "aud": AUDIENCE,
            "sub": "repo:acme/shell:environment:release",
            "jti": str(uuid4()),
            "iat": at,
            "nbf": at - 5 * MINUTE,
            "exp": at + 5 * MINUTE,
            "event_name": "push",
            "run_id": "17",
            "run_attempt": "2",
            **REQUIRED,
            **other,
        }
        return {name: value for name, value in claims.items() if value is not None}

    def token(self, now: datetime, **other: Any) -> str:
        return self.signed(self.claims(now, **other))

    def signed(self, claims: dict[str, Any], *, kid: str | None = None, **header: Any) -> str:
        kid = kid or next(iter(self.keys))
        key = self.keys.get(kid) or next(iter(self.keys.values()))
        algorithm = "RS256" if isinstance(key, rsa.RSAPrivateKey) else "ES256"
        return jwt.encode(claims, key, algorithm, headers={"kid": kid, **header})


def new_rsa(bits: int = 2048) -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, bits)


def new_ec(curve: ec.EllipticCurve | None = None) -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(curve or ec.SECP256R1())


def public(key: Any, kid: str, **other: Any) -> dict[str, Any]:
    """The public half, as it stands in a set of keys."""
    kind = jwt.algorithms.RSAAlgorithm if isinstance(key, rsa.RSAPrivateKey) else None
    to_jwk = (kind or jwt.algorithms.ECAlgorithm).to_jwk
    jwk = json.loads(to_jwk(key.public_key()))
    return {**jwk, "kid": kid, "use": "sig", **other}
