"""What is said to a provider, and what its answers mean. Authlib says it; what comes back is judged here.

By itself Authlib takes an answer of status 400 without an ``error`` for a token, fails on an error's description
that has quotes in it, and loses a refresh token beside an ``expires_in`` that is no number.
"""

import re
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from math import inf
from typing import Any, NamedTuple, TypeGuard
from urllib.parse import quote_plus

from authlib.oauth2 import ClientAuth, OAuth2Client

from accounts.connections.exchange import Answer, Session
from accounts.connections.provider_settings import OAuthProvider
from accounts.models import Connection
from config.api.problems import Problem, ProviderError, ProviderTimeout, ProviderUnavailable
from config.http import NoAnswer

Failure = Connection.Failure
LONGEST_TOKEN = 16 * 1024
LONGEST_LIFE = timedelta(days=3650)
# Where a provider gives a refresh token and does not say how long the access token lasts.
ASSUMED_LIFE = timedelta(minutes=10)
# A provider is left alone for a moment after a failure, and for as long as it asks within bounds.
PAUSE_SECONDS = 5
LONGEST_PAUSE_SECONDS = 300
MOST_SCOPES = 100
# As in RFC 6749 (3.3), but not endless. What is none is left out: it must not cost the tokens beside it.
SCOPE = re.compile(r"[!#-\[\]-~]{1,500}")
CLIENT_ERRORS = {"invalid_client", "unauthorized_client"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """What a provider gave. ``scopes`` is None where it did not say; ``expires_at`` None: not by itself."""

    access: str = field(repr=False)
    refresh: str | None = field(repr=False)
    expires_at: datetime | None
    scopes: list[str] | None


class Asked(NamedTuple):
    """What an authorisation asks for: where to send the person, and what only this side knows."""

    redirect_uri: str
    state: str
    verifier: str


class GrantRefused(Exception):
    """The provider does not accept this code or refresh token (``invalid_grant``)."""


class ProviderFailed(Exception):
    """The provider did not do what it was asked, for a reason that says nothing about the grant.

    ``sent``: it may have done it all the same, and its answer is lost. ``pause``: seconds to leave it alone.
    """

    def __init__(self, kind: Failure, *, sent: bool = True, pause: int = PAUSE_SECONDS) -> None:
        self.kind = kind
        self.sent = sent
        self.pause = pause
        super().__init__(kind.value)

    def problem(self) -> Problem:
        """What it means to who has asked."""
        return problem_of(self.kind, seconds=self.pause)


def problem_of(kind: str, *, seconds: int) -> Problem:
    """The problem that a kind of failure is; ``seconds`` until the provider may be asked again."""
    headers = {"Retry-After": str(max(1, seconds))}
    if kind == Failure.TIMED_OUT:
        return ProviderTimeout(headers=headers)
    if kind in {Failure.UNREACHABLE, Failure.OVERLOADED}:
        return ProviderUnavailable(headers=headers)
    return ProviderError(headers=headers)


def authorization_url(provider: OAuthProvider, asked: Asked) -> str:
    """Where the person agrees or does not: with PKCE (S256) and the provider's own parameters."""
    client = _client(provider, scope=" ".join(provider.scopes), redirect_uri=asked.redirect_uri)
    url, _ = client.create_authorization_url(
        provider.authorization_endpoint,
        state=asked.state,
        code_verifier=asked.verifier,
        **provider.authorization_params,
    )
    return str(url)


def redeem(provider: OAuthProvider, *, code: str, asked: Asked, now: datetime) -> Tokens:
    """The tokens for an authorisation's code. Raises ``GrantRefused`` and ``ProviderFailed``."""
    client = _client(provider, redirect_uri=asked.redirect_uri)
    return _tokens(
        lambda: client.fetch_token(
            provider.token_endpoint,
            grant_type="authorization_code",
            code=code,
            code_verifier=asked.verifier,
        ),
        now,
    )


def renew(provider: OAuthProvider, *, refresh_token: str, now: datetime) -> Tokens:
    """New tokens for a refresh token, which stays the same where the provider gives no other.

    Raises ``GrantRefused`` and ``ProviderFailed``.
    """
    client = _client(provider)
    return _tokens(
        lambda: client.refresh_token(provider.token_endpoint, refresh_token=refresh_token),
        now,
        before=refresh_token,
    )


def revoke(provider: OAuthProvider, *, token: str, hint: str) -> None:
    """Voids a token at its provider (RFC 7009). A token that is void already is voided.

    Raises ``ProviderFailed`` wherever the provider has not confirmed it.
    """
    try:
        answer = _client(provider).revoke_token(
            provider.revocation_endpoint, token=token, token_type_hint=hint
        )
    except NoAnswer as error:
        raise _no_answer(error) from None
    # RFC 7009 answers 200 for unknown tokens too; some providers say 400 with one of these instead.
    if 200 <= answer.status_code < 300 or _error(answer) in {"invalid_token", "invalid_grant"}:
        return
    _judge(answer)
    raise ProviderFailed(Failure.FAILED)


class _Client(OAuth2Client):  # type: ignore[misc]  # it has no types
    """Authlib's client, which hands over what an answer says and judges nothing itself."""

    def parse_response_token(self, resp: Answer) -> dict[str, Any]:
        members = _judge(resp).members()
        # Where the library puts the refresh token that an answer leaves as it was.
        self.token_auth.token = members
        return members


def _client(provider: OAuthProvider, **options: Any) -> _Client:
    method = provider.token_endpoint_auth_method
    client = _Client(
        Session(),
        client_id=provider.client_id,
        client_secret=provider.client_secret or None,
        token_endpoint_auth_method=method,
        revocation_endpoint_auth_method=method,
        code_challenge_method="S256",
        **options,
    )
    client.register_client_auth_method(("client_secret_basic", _basic))
    return client


def _basic(
    client: ClientAuth, method: str, uri: str, headers: dict[str, str], body: str
) -> tuple[str, dict[str, str], str]:
    """HTTP Basic as RFC 6749 (2.3.1) wants it: both parts form-encoded first, which Authlib leaves out."""
    pair = f"{quote_plus(client.client_id)}:{quote_plus(client.client_secret)}"
    headers["Authorization"] = f"Basic {b64encode(pair.encode()).decode()}"
    return uri, headers, body


def _tokens(
    ask: Callable[[], dict[str, Any]], now: datetime, *, before: str | None = None
) -> Tokens:
    try:
        given = ask()
    except NoAnswer as error:
        raise _no_answer(error) from None
    access, refresh = given.get("access_token"), given.get("refresh_token") or before
    kind = given.get("token_type") or "bearer"
    if not (_is_token(access) and (refresh is None or _is_token(refresh))):
        raise ProviderFailed(Failure.FAILED)
    if not isinstance(kind, str) or kind.lower() != "bearer":
        raise ProviderFailed(Failure.FAILED)
    life = _life(given.get("expires_in"), assumed=ASSUMED_LIFE if refresh else None)
    return Tokens(
        access=access,
        refresh=refresh,
        # From before it was asked for, so that it is never believed for too long.
        expires_at=now + life if life is not None else None,
        scopes=_scopes(given.get("scope")),
    )


def _judge(answer: Answer) -> Answer:
    """Lets through what may hold tokens, and raises what everything else means."""
    error, status = _error(answer), answer.status_code
    if status in {429, 503}:
        raise ProviderFailed(Failure.OVERLOADED, sent=False, pause=_pause(answer.headers))
    if error == "invalid_grant" and status < 500:
        raise GrantRefused
    if error in CLIENT_ERRORS or status == 401:
        raise ProviderFailed(Failure.CLIENT_REFUSED, sent=False)
    if error in {"temporarily_unavailable", "slow_down"}:
        raise ProviderFailed(Failure.OVERLOADED, sent=False, pause=_pause(answer.headers))
    if error or not 200 <= status < 300:
        raise ProviderFailed(Failure.FAILED)
    return answer


def _error(answer: Answer) -> str:
    """The code of an error answer, whatever its status; "" where it holds none."""
    error = answer.members().get("error")
    return error if isinstance(error, str) else ""


def _no_answer(error: NoAnswer) -> ProviderFailed:
    kind = Failure.TIMED_OUT if error.reason == "too_slow" else Failure.UNREACHABLE
    return ProviderFailed(kind, sent=error.sent)


def _pause(headers: Mapping[str, str]) -> int:
    value = {name.lower(): each for name, each in headers.items()}.get("retry-after", "").strip()
    seconds = int(value) if value.isascii() and value.isdecimal() and len(value) < 9 else 0
    return min(max(seconds, PAUSE_SECONDS), LONGEST_PAUSE_SECONDS)


def _is_token(value: object) -> TypeGuard[str]:
    return (
        isinstance(value, str)
        and 0 < len(value) <= LONGEST_TOKEN
        and value.isascii()
        and value.isprintable()
    )


def _life(expires_in: object, *, assumed: timedelta | None) -> timedelta | None:
    """How long an access token lasts; some providers write the seconds as a text."""
    if isinstance(expires_in, str) and expires_in.isascii() and expires_in.isdecimal():
        expires_in = int(expires_in[:12])
    # NaN is not above 0 either.
    if (
        isinstance(expires_in, bool)
        or not isinstance(expires_in, int | float)
        or not expires_in > 0
        or expires_in == inf
    ):
        return assumed
    # Compared as it is: not every integer is a float.
    return timedelta(seconds=min(expires_in, LONGEST_LIFE.total_seconds()))


def _scopes(value: object) -> list[str] | None:
    if not isinstance(value, str):
        return None
    words = sorted({each for each in value.split() if SCOPE.fullmatch(each)})
    return words[:MOST_SCOPES]
