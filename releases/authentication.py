"""Who may publish: a release pipeline that knows one of the shared secrets.

Two secrets at a time let one be replaced without a pause. None is ever told apart from another by how long the
comparison takes, and the audit log names a secret by its place in the list.
"""

from dataclasses import dataclass
from hashlib import sha256
from hmac import compare_digest
from typing import ClassVar

from django.conf import settings
from rest_framework.authentication import BaseAuthentication
from rest_framework.request import Request

from accounts.authentication import InvalidAccessToken
from config.problems import NotAuthenticated, NotConfigured

SCHEME = "bearer"


class InvalidPublishSecret(InvalidAccessToken):
    title = "Not a publisher"
    default_detail = "This is not a secret that publishes releases."


@dataclass(frozen=True, slots=True)
class Publisher:
    """A pipeline that may publish, as the audit log names it."""

    name: str
    is_authenticated: ClassVar[bool] = True
    pk: ClassVar[None] = None


class PublisherAuthentication(BaseAuthentication):
    """``Authorization: Bearer <one of PUBLISH_SECRETS>``."""

    def authenticate(self, request: Request) -> tuple[Publisher, None]:
        secrets = settings.PUBLISH_SECRETS.listed()
        if not secrets:
            raise NotConfigured("Publishing needs PUBLISH_SECRETS, which has not been set.")
        number = _number(_presented(request), secrets)
        if number is None:
            raise InvalidPublishSecret
        return Publisher(f"release pipeline (secret {number})"), None

    def authenticate_header(self, request: Request) -> str:
        return "Bearer"


def _presented(request: Request) -> bytes:
    header: str = request.META.get("HTTP_AUTHORIZATION", "")
    scheme, _, presented = header.partition(" ")
    if scheme.lower() != SCHEME:
        raise NotAuthenticated("Publishing needs a bearer secret.")
    # WSGI gives the bytes of a header as latin-1.
    return presented.strip().encode("latin-1", "replace")


def _number(presented: bytes, secrets: list[str]) -> int | None:
    """Which of the secrets it is, counted from 1; all are compared, whichever fits.

    Hashes have one length, so that not even the length of a secret can be measured.
    """
    digest = sha256(presented).digest()
    fits = [compare_digest(digest, sha256(each.encode()).digest()) for each in secrets]
    return fits.index(True) + 1 if any(fits) else None
