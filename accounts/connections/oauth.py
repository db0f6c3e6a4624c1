"""The OAuth 2.0 protocol with a provider: Authlib makes the requests, this module interprets the responses.

Authlib itself accepts a response of status 400 without an ``error`` as a token, fails on an error description with
quotes, and loses a refresh token beside an ``expires_in`` that is not a number.
"""

from base64 import b64encode
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from math import inf
from typing import Any, NamedTuple, TypeGuard
from urllib.parse import quote_plus

from authlib.oauth2 import ClientAuth, OAuth2Client

from accounts.connections.exchange import Answer, Session
from accounts.connections.provider_settings import OAuthProvider
from accounts.connections.refusals import Meaning, meaning_of
from accounts.connections.scopes import granted
from accounts.models import Connection
from config.platform.http.errors import ExchangeError
from config.platform.http.retries import retry_after
from config.platform.problems.problem import (
    Problem,
    ProviderError,
    ProviderTimeout,
    ProviderUnavailable,
)

Failure = Connection.Failure
LONGEST_TOKEN = 16 * 1024
LONGEST_LIFE = timedelta(days=3650)
# For a response with a refresh token and without ``expires_in``.
ASSUMED_LIFE = timedelta(minutes=10)
# The pause after a failure: the provider's Retry-After, within bounds.
PAUSE_SECONDS = 5
LONGEST_PAUSE_SECONDS = 300
# Statuses of an address or a moment, whatever else a response says.
NOT_FOUND, NOT_ALLOWED, TOO_SLOW, TOO_EARLY = 404, 405, 408, 425
OF_NO_GRANT = {NOT_FOUND, NOT_ALLOWED, TOO_SLOW, TOO_EARLY}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """A provider's tokens. ``scopes`` is None if the response has none; ``expires_at`` is None for no end."""

    access: str = field(repr=False)
    refresh: str | None = field(repr=False)
    expires_at: datetime | None
    scopes: list[str] | None


class AuthorisationRequest(NamedTuple):
    """The parameters of an authorisation that its completion needs again."""

    redirect_uri: str
    state: str
    verifier: str


class GrantRefused(Exception):
    """The provider does not accept this code or refresh token; only the person can bring another."""


class ProviderFailed(Exception):
    """A failed request to the provider, which implies nothing about the grant.

    ``sent``: the request may have succeeded, and its response was lost. ``pause``: seconds until the next request.
    ``unknown``: the provider refused in words that ``refusals`` does not know.
    """

    def __init__(
        self,
        kind: Failure,
        *,
        sent: bool = True,
        pause: int = PAUSE_SECONDS,
        unknown: bool = False,
    ) -> None:
        self.kind = kind
        self.sent = sent
        self.pause = pause
        self.unknown = unknown
        super().__init__(kind.value)

    def problem(self) -> Problem:
        """The problem for the caller."""
        return problem_of(self.kind, seconds=self.pause)


def problem_of(kind: str, *, seconds: int) -> Problem:
    """The problem of a kind of failure; ``seconds`` until the next request to the provider."""
    headers = {"Retry-After": str(max(1, seconds))}
    if kind == Failure.TIMED_OUT:
        return ProviderTimeout(headers=headers)
    if kind in {Failure.UNREACHABLE, Failure.OVERLOADED}:
        return ProviderUnavailable(headers=headers)
    return ProviderError(headers=headers)


def authorization_url(provider: OAuthProvider, asked: AuthorisationRequest) -> str:
    """The address of the provider's consent page, with PKCE (S256) and the provider's extra parameters."""
    client = _client(provider, scope=" ".join(provider.scopes), redirect_uri=asked.redirect_uri)
    url, _ = client.create_authorization_url(
        provider.authorization_endpoint,
        state=asked.state,
        code_verifier=asked.verifier,
        **provider.authorization_params,
    )
    return str(url)


def redeem(
    provider: OAuthProvider, *, code: str, asked: AuthorisationRequest, now: datetime
) -> Tokens:
    """Exchanges an authorisation's code for tokens. Raises ``GrantRefused`` and ``ProviderFailed``."""
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
    """New tokens for a refresh token, which stays the same unless the provider replaces it.

    Raises ``GrantRefused`` and ``ProviderFailed``.
    """
    client = _client(provider)
    return _tokens(
        lambda: client.refresh_token(provider.token_endpoint, refresh_token=refresh_token),
        now,
        before=refresh_token,
    )


def revoke(provider: OAuthProvider, *, token: str, hint: str) -> None:
    """Revokes a token at its provider (RFC 7009); a token that is already void counts as revoked.

    Raises ``ProviderFailed`` unless the provider confirms it.
    """
    try:
        answer = _client(provider).revoke_token(
            provider.revocation_endpoint, token=token, token_type_hint=hint
        )
    except ExchangeError as error:
        raise _no_answer(error) from None
    # RFC 7009 requires 200 for unknown tokens too; some providers answer 400 with one of these errors.
    if _error(answer) in {"invalid_token", "invalid_grant"}:
        return
    # Some providers report a failure with 200 too.
    failed = meaning_of(answer.members()) in {Meaning.CLIENT, Meaning.BUSY, Meaning.FAULT}
    if 200 <= answer.status_code < 300 and not failed:
        return
    with suppress(GrantRefused):
        _judge(answer)
    raise ProviderFailed(Failure.FAILED)


class _Client(OAuth2Client):  # type: ignore[misc]  # it has no types
    """Authlib's client without its own checks of responses."""

    def parse_response_token(self, resp: Answer) -> dict[str, Any]:
        members = _judge(resp).members()
        # The library adds the unchanged refresh token here.
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
    """HTTP Basic by RFC 6749 (2.3.1): both parts are form-encoded first, which Authlib leaves out."""
    pair = f"{quote_plus(client.client_id)}:{quote_plus(client.client_secret)}"
    headers["Authorization"] = f"Basic {b64encode(pair.encode()).decode()}"
    return uri, headers, body


def _tokens(
    ask: Callable[[], dict[str, Any]], now: datetime, *, before: str | None = None
) -> Tokens:
    try:
        given = ask()
    except ExchangeError as error:
        raise _no_answer(error) from None
    access, refresh = given.get("access_token"), given.get("refresh_token") or before
    kind = given.get("token_type") or "bearer"
    if not (_is_token(access) and (refresh is None or _is_token(refresh))):
        # A document without a token is a refusal in words of the provider's own; the library adds the refresh token.
        unknown = "access_token" not in given and bool(given.keys() - {"refresh_token"})
        raise ProviderFailed(Failure.FAILED, unknown=unknown)
    if not isinstance(kind, str) or kind.lower() != "bearer":
        raise ProviderFailed(Failure.FAILED)
    life = _life(given.get("expires_in"), assumed=ASSUMED_LIFE if refresh else None)
    return Tokens(
        access=access,
        refresh=refresh,
        # Counted from before the request, so that a token is never used after its end.
        expires_at=now + life if life is not None else None,
        scopes=granted(given.get("scopes") if given.get("scope") is None else given["scope"]),
    )


def _judge(answer: Answer) -> Answer:
    """Returns a successful response; raises the meaning of any other."""
    members, status = answer.members(), answer.status_code
    error, meaning = _error(answer), meaning_of(members)
    succeeded = 200 <= status < 300
    if succeeded and not error and (meaning is None or "access_token" in members):
        return answer
    if status in {429, 503}:
        raise ProviderFailed(Failure.OVERLOADED, sent=False, pause=_pause(answer.headers))
    if meaning == Meaning.PERSON and status < 500:
        raise GrantRefused
    unknown = meaning is None and (succeeded or (400 <= status < 500 and status not in OF_NO_GRANT))
    if meaning == Meaning.CLIENT or status == 401:
        unknown = unknown and not answer.is_empty
        raise ProviderFailed(Failure.CLIENT_REFUSED, sent=False, unknown=unknown)
    if meaning == Meaning.BUSY:
        raise ProviderFailed(Failure.OVERLOADED, sent=False, pause=_pause(answer.headers))
    raise ProviderFailed(Failure.FAILED, sent=succeeded or not unknown, unknown=unknown)


def _error(answer: Answer) -> str:
    """The error code of a response of any status in small letters, or ""."""
    error = answer.members().get("error")
    return error.lower() if isinstance(error, str) else ""


def _no_answer(error: ExchangeError) -> ProviderFailed:
    kind = Failure.TIMED_OUT if error.reason == "too_slow" else Failure.UNREACHABLE
    return ProviderFailed(kind, sent=error.sent)


def _pause(headers: Mapping[str, str]) -> int:
    return min(max(retry_after(headers) or 0, PAUSE_SECONDS), LONGEST_PAUSE_SECONDS)


def _is_token(value: object) -> TypeGuard[str]:
    return (
        isinstance(value, str)
        and 0 < len(value) <= LONGEST_TOKEN
        and value.isascii()
        and value.isprintable()
    )


def _life(expires_in: object, *, assumed: timedelta | None) -> timedelta | None:
    """The lifetime of an access token; some providers send the seconds as a string."""
    if isinstance(expires_in, str) and expires_in.isascii() and expires_in.isdecimal():
        expires_in = int(expires_in[:12])
    # NaN is not greater than 0 either.
    if (
        isinstance(expires_in, bool)
        or not isinstance(expires_in, int | float)
        or not expires_in > 0
        or expires_in == inf
    ):
        return assumed
    # Compared without conversion: not every integer fits a float.
    return timedelta(seconds=min(expires_in, LONGEST_LIFE.total_seconds()))
