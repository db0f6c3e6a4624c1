"""Authentication of release pipelines by a shared secret or by an identity token (``identity_tokens.py``).

Two secrets at a time allow replacement without a pause. The comparison takes constant time, and the audit log names a
secret by its place in the list.
"""

from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from hmac import compare_digest
from typing import ClassVar

from django.conf import settings
from django.utils import timezone
from rest_framework.authentication import BaseAuthentication
from rest_framework.request import Request

from accounts.audit import Actor, record
from accounts.sessions.authentication import InvalidAccessToken
from config.platform.problems.problem import NotAuthenticated, NotConfigured
from config.platform.request.client_address import address_of
from config.platform.request.request_id import current as request_id
from releases.pipeline import refused_credentials
from releases.pipeline.identity_tokens import (
    AnotherPipeline,
    IdentityTokenRefused,
    OneTime,
    identify,
    looks_like_one,
)

SCHEME = "bearer"


class InvalidPublishSecret(InvalidAccessToken):
    title = "Not a publisher"
    default_detail = "This is neither a publish secret nor an identity token for publishing."


@dataclass(frozen=True, slots=True)
class Publisher:
    """A pipeline that may publish, by its name in the audit log; with its identity token, if any."""

    name: str
    token: OneTime | None = None
    is_authenticated: ClassVar[bool] = True
    pk: ClassVar[None] = None


class PublisherAuthentication(BaseAuthentication):
    """``Authorization: Bearer <one of PUBLISH_SECRETS, or an identity token>``."""

    def authenticate(self, request: Request) -> tuple[Publisher, None]:
        secrets, now = settings.PUBLISH_SECRETS.listed(), timezone.now()
        if not secrets and not settings.PUBLISH_OIDC_ISSUER:
            raise NotConfigured(
                "Publishing needs PUBLISH_SECRETS or PUBLISH_OIDC_ISSUER; neither is set."
            )
        presented = _presented(request)
        number = _number(presented, secrets)
        if number is not None:
            return Publisher(f"release pipeline (secret {number})"), None
        if not settings.PUBLISH_OIDC_ISSUER or not looks_like_one(presented):
            refusal = InvalidPublishSecret()
            refused_credentials.note(refusal, by=actor_of(request), now=now)
            raise refusal
        return _identified(request, presented, now), None

    def authenticate_header(self, request: Request) -> str:
        return "Bearer"


def _identified(request: Request, presented: bytes, now: datetime) -> Publisher:
    try:
        identity = identify(presented, now=now)
    except AnotherPipeline as refusal:
        # The issuer confirms this identity, so the audit log can name it.
        by = actor_of(request, refusal.name)
        faults = [f"{fault.pointer} {fault.code}" for fault in refusal.errors]
        record("release:refused", by=by, now=now, after={"code": refusal.code, "errors": faults})
        raise
    except IdentityTokenRefused as refusal:
        refused_credentials.note(refusal, by=actor_of(request), now=now)
        raise
    return Publisher(identity.name, identity.token)


def actor_of(request: Request, name: str = "") -> Actor:
    return Actor(name=name, address=address_of(request), request_id=request_id())


def _presented(request: Request) -> bytes:
    header: str = request.META.get("HTTP_AUTHORIZATION", "")
    scheme, _, presented = header.partition(" ")
    if scheme.lower() != SCHEME:
        raise NotAuthenticated(
            "Publishing needs a publish secret or identity token as the bearer token."
        )
    # WSGI decodes headers as latin-1.
    return presented.strip().encode("latin-1", "replace")


def _number(presented: bytes, secrets: list[str]) -> int | None:
    """The number of the matching secret, from 1. Compares all of them in constant time.

    Compares hashes, whose equal length hides the length of a secret.
    """
    digest = sha256(presented).digest()
    fits = [compare_digest(digest, sha256(each.encode()).digest()) for each in secrets]
    return fits.index(True) + 1 if any(fits) else None
