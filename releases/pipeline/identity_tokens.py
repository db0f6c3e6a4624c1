"""Verification of the identity tokens of pipelines (OpenID Connect).

A token is a JWT that the pipeline's host (GitHub, GitLab, …) signs for one run. It may publish if it has the issuer,
the audience and the claims in the settings, is valid now, and an event of those listed here started its run.
``served_tokens.py`` limits its use.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any

import jwt
from django.conf import settings

from config.platform.problems.problem import Fault, Problem
from releases.pipeline.issuer_keys import KINDS as ALGORITHMS
from releases.pipeline.issuer_keys import keys_of
from releases.pipeline.issuer_settings import OWNER_ID, is_github

LONGEST = 8192
LEEWAY = timedelta(seconds=30)
# A run's token lives for minutes, or as long as its job.
LONGEST_LIFE = timedelta(days=1)
# The events that people with rights in the project cause, by the claim that names them. Others, as those of comments
# and forks, may be caused by anybody.
EVENTS: Mapping[str, frozenset[str]] = {
    "event_name": frozenset({"push", "release", "schedule", "workflow_dispatch"}),
    "pipeline_source": frozenset({"api", "push", "schedule", "trigger", "web"}),
}
NAME_LENGTH = 120
# PyJWT verifies only the signature; the rest is checked here, at the time of the call.
_ONLY_THE_SIGNATURE: Any = {
    f"verify_{each}": False for each in ("exp", "nbf", "iat", "aud", "iss", "sub", "jti")
}
_NOTHING: Any = {**_ONLY_THE_SIGNATURE, "verify_signature": False}


class IdentityTokenRefused(Problem):
    """``errors`` name the refused claims, but not the values that the settings demand."""

    code = "invalid_access_token"
    status = 401
    title = "Not a publisher"
    default_detail = "This identity token may not publish releases."


class AnotherPipeline(IdentityTokenRefused):
    """A valid token of a run that may not publish. ``name``: its project, for the audit log."""

    def __init__(self, name: str, faults: Iterable[Fault]) -> None:
        super().__init__(errors=faults)
        self.name = name


@dataclass(frozen=True, slots=True, kw_only=True)
class OneTime:
    """The digest of a token's issuer and id, and the end of its validity."""

    id_sha256: str
    ends: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """A run of the pipeline that may publish, by its name in the audit log."""

    name: str
    token: OneTime


def looks_like_one(presented: bytes) -> bool:
    """Returns whether this has the form of a signed token: three parts, and not too long."""
    return len(presented) <= LONGEST and presented.count(b".") == 2


def identify(token: bytes, *, now: datetime) -> Identity:
    """Verifies a token; raises ``IdentityTokenRefused`` or ``IssuerUnavailable``.

    Checks the unverified claims first, and fetches the issuer's keys only for a token that passes.
    """
    kid, algorithm = _header(token)
    claims = _decoded(token, "", algorithm, _NOTHING)
    if faults := list(_of_envelope(claims, now)):
        raise IdentityTokenRefused(errors=faults)
    key = keys_of(settings.PUBLISH_OIDC_ISSUER).find(kid, algorithm, now=now)
    if key is None:
        raise IdentityTokenRefused("The issuer has no key with this id.")
    claims = _decoded(token, key, algorithm, _ONLY_THE_SIGNATURE)
    name = _name(claims)
    if faults := list(_of_pipeline(claims)):
        raise AnotherPipeline(name, faults)
    id_ = sha256(f"{settings.PUBLISH_OIDC_ISSUER}\n{claims['jti']}".encode()).hexdigest()
    ends = datetime.fromtimestamp(claims["exp"], UTC) + LEEWAY
    return Identity(name=name, token=OneTime(id_sha256=id_, ends=ends))


def _header(token: bytes) -> tuple[str, str]:
    """Returns the key id and the algorithm, the only used members of the header."""
    try:
        header = jwt.get_unverified_header(token)
    except (jwt.PyJWTError, ValueError, RecursionError):
        raise IdentityTokenRefused from None
    kid, algorithm = header.get("kid"), header.get("alg")
    if not isinstance(kid, str) or not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
        raise IdentityTokenRefused
    # No critical extension is known here.
    if "crit" in header:
        raise IdentityTokenRefused
    return kid, algorithm


def _decoded(token: bytes, key: Any, algorithm: str, options: Any) -> dict[str, Any]:
    try:
        claims: dict[str, Any] = jwt.decode(token, key, algorithms=[algorithm], options=options)
    except (jwt.PyJWTError, ValueError, RecursionError):
        raise IdentityTokenRefused from None
    return claims


def _of_envelope(claims: Mapping[str, Any], now: datetime) -> Iterable[Fault]:
    """Checks the issuer, the audience, the id and the times."""
    if claims.get("iss") != settings.PUBLISH_OIDC_ISSUER:
        yield Fault("/iss", "wrong_issuer", "The token has a different issuer.")
    audience = settings.PUBLISH_OIDC_AUDIENCE
    if claims.get("aud") not in (audience, [audience]):
        yield Fault("/aud", "wrong_audience", "The token has a different audience, or several.")
    jti = claims.get("jti")
    if not isinstance(jti, str) or not jti:
        yield Fault("/jti", "required", "The token needs an id, which makes it one-time.")
    yield from _of_times(claims, now)


def _of_times(claims: Mapping[str, Any], now: datetime) -> Iterable[Fault]:
    issued, ends, begins = claims.get("iat"), claims.get("exp"), claims.get("nbf", 0)
    seconds, leeway = now.timestamp(), LEEWAY.total_seconds()
    if type(issued) is not int or type(ends) is not int or type(begins) is not int:
        yield Fault(
            "/exp", "invalid_type", "`iat`, `exp` and the optional `nbf` are whole seconds."
        )
        return
    if ends <= seconds - leeway:
        yield Fault(
            "/exp", "expired", "The token has expired; request one right before publishing."
        )
    if ends - issued > LONGEST_LIFE.total_seconds():
        yield Fault("/exp", "too_long", "The token is valid for longer than a run.")
    if issued > seconds + leeway:
        yield Fault("/iat", "not_yet", "The token was issued in the future.")
    if begins > seconds + leeway:
        yield Fault("/nbf", "not_yet", "The token is not valid yet.")


def _of_pipeline(claims: Mapping[str, Any]) -> Iterable[Fault]:
    """Checks the claims about the run."""
    for name, demanded in settings.PUBLISH_OIDC_CLAIMS.items():
        if _text(claims.get(name)) != demanded:
            yield Fault(f"/{name}", "wrong_claim", "The claim's value differs from the settings.")
    for name, allowed in EVENTS.items():
        if (name in claims or _is_demanded(name)) and _text(claims.get(name)) not in allowed:
            detail = f"Only runs of these events can publish: {', '.join(sorted(allowed))}."
            yield Fault(f"/{name}", "strangers_event", detail)


def _is_demanded(name: str) -> bool:
    """Returns whether the issuer names the event of each run: GitHub does, and others with GitHub's claims."""
    named = settings.PUBLISH_OIDC_CLAIMS.keys() & {"repository", "repository_id", OWNER_ID}
    return name == "event_name" and (bool(named) or is_github(settings.PUBLISH_OIDC_ISSUER))


def _text(value: object) -> str | None:
    """A claim in the notation of the settings."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, (str, int)) else None


def _name(claims: Mapping[str, Any]) -> str:
    """``release pipeline of owner/project, run 17.1 at refs/heads/main``, from the claims."""
    whose = _first(claims, "repository", "project_path", "sub") or "an unnamed project"
    run, attempt = _first(claims, "run_id", "pipeline_id"), _first(claims, "run_attempt")
    ref = _first(claims, "ref")
    name = f"release pipeline of {whose}"
    name += f", run {run}{f'.{attempt}' if attempt else ''}" if run else ""
    name += f" at {ref}" if ref else ""
    return "".join(each for each in name if each.isprintable())[:NAME_LENGTH]


def _first(claims: Mapping[str, Any], *names: str) -> str | None:
    return next((text for each in names if (text := _text(claims.get(each)))), None)
