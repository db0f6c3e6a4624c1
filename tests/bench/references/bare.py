"""The least that answers a caller by a row: one function under the same server, without any framework.

It checks the token with the same library and key as the service, asks the row of the token's session over a pool of
psycopg's, and answers JSON. It looks neither at limits nor at revocations, names no entity tag and logs nothing.
"""

import json
import os
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, cast

import jwt
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from psycopg_pool import ConnectionPool

CLAIMS = ["iss", "sub", "sid", "ver", "iat", "exp"]
ROW = "SELECT started_at, user_id FROM accounts_session WHERE id = %s"

_key = cast("RSAPublicKey", load_pem_public_key(os.environ["BENCH_PUBLIC_KEY"].encode()))


def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    scheme, _, token = environ.get("HTTP_AUTHORIZATION", "").partition(" ")
    try:
        claims = jwt.decode(
            token,
            _key,
            algorithms=["RS256"],
            issuer=os.environ["BASE_URL"],
            options={"require": CLAIMS, "verify_aud": False},
        )
    except jwt.InvalidTokenError:
        return _answered(start_response, "401 Unauthorized", {"code": "invalid_access_token"})
    with _pool().connection() as connection:
        row = connection.execute(ROW, [claims["sid"]]).fetchone()
    if scheme != "Bearer" or row is None:
        return _answered(start_response, "401 Unauthorized", {"code": "invalid_access_token"})
    found = {"status": "active", "plan": claims["plan"], "entitlements": claims["entitlements"]}
    return _answered(start_response, "200 OK", found)


def _answered(
    start_response: Callable[..., Any], status: str, document: dict[str, Any]
) -> Iterable[bytes]:
    body = json.dumps(document).encode()
    length = str(len(body))
    start_response(status, [("Content-Type", "application/json"), ("Content-Length", length)])
    return [body]


@cache
def _pool() -> ConnectionPool[Any]:
    """Made by the first request, after the fork."""
    kwargs = {"autocommit": True, "prepare_threshold": 0}
    return ConnectionPool(
        os.environ["DATABASE_URL"], min_size=0, max_size=16, kwargs=kwargs, open=True
    )
