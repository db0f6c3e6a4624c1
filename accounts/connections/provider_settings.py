"""Parses ``OAUTH_PROVIDERS``, the third parties that people can connect: a JSON object, name → settings.

    {"google": {"client_id": "…", "client_secret": "…"},
     "sheets": {"client_id": "…", "client_secret": "…", "scopes": ["read", "write"],
                "authorization_endpoint": "https://sheets.example.com/oauth/authorize",
                "token_endpoint": "https://sheets.example.com/oauth/token",
                "revocation_endpoint": "https://sheets.example.com/oauth/revoke"}}

A faulty value stops the start with a sentence that names the member and repeats none of its value.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any
from urllib.parse import urlsplit

from environs import ValidationError

from config.platform.env.hosts import is_loopback

NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}", re.ASCII)
METHODS = ("client_secret_basic", "client_secret_post", "none")
# Parameters that the service itself sets in an authorisation request, and argument names of its library.
RESERVED = {
    "client_id", "redirect_uri", "response_type", "scope", "state", "code_challenge", "code_challenge_method",
    "code_verifier", "url",
}  # fmt: skip
PRESETS: Mapping[str, Mapping[str, Any]] = {
    "google": {
        "authorization_endpoint": "https://accounts.google.com/o/oauth2/v2/auth",
        "token_endpoint": "https://oauth2.googleapis.com/token",  # nosec B105 # an address
        "revocation_endpoint": "https://oauth2.googleapis.com/revoke",
        "issuer": "https://accounts.google.com",
        "scopes": ["https://www.googleapis.com/auth/spreadsheets"],
        # Without both there is no refresh token from the second authorisation on.
        "authorization_params": {"access_type": "offline", "prompt": "consent"},
        "token_endpoint_auth_method": "client_secret_post",  # nosec B105 # the name of a way
        "one_grant": True,
    }
}


@dataclass(frozen=True, slots=True, kw_only=True)
class OAuthProvider:
    """An authorisation server, and the service's registration with it.

    ``one_grant``: the server keeps one grant per person, so that revoking any of its tokens revokes all of them.
    ``issuer``: the server's name in its redirects (RFC 9207); "" if it sends none. ``iss_required``: it is known
    to send it, as one whose metadata has ``authorization_response_iss_parameter_supported``.
    """

    name: str
    client_id: str
    client_secret: str = field(default="", repr=False)
    authorization_endpoint: str
    token_endpoint: str
    revocation_endpoint: str = ""
    issuer: str = ""
    iss_required: bool = False
    scopes: tuple[str, ...] = ()
    authorization_params: Mapping[str, str] = field(default_factory=dict)
    token_endpoint_auth_method: str
    one_grant: bool = False


MEMBERS = {each.name for each in fields(OAuthProvider)} - {"name"}


def read(value: str) -> dict[str, OAuthProvider]:
    """Returns the providers by name; raises ``ValidationError`` for a faulty value."""
    if not value.strip():
        return {}
    try:
        document = json.loads(value)
    except (ValueError, RecursionError):
        raise ValidationError("Not JSON.") from None
    if not isinstance(document, dict):
        raise ValidationError("Must be a JSON object of providers by name.")
    return {name: _provider(name, given) for name, given in document.items()}


def _provider(name: str, given: Any) -> OAuthProvider:
    if not NAME.fullmatch(name):
        raise ValidationError(
            "A provider's name has at most 40 lower-case letters, digits, - and _."
        )
    if not isinstance(given, dict):
        raise _fault(name, "must be an object")
    if given.keys() - MEMBERS:
        # Without the name: a secret may stand in its place.
        raise _fault(name, f"can have no other members than {', '.join(sorted(MEMBERS))}")
    members = {**PRESETS.get(name, {}), **given}
    secret = _text(name, members, "client_secret", needed=False)
    method = members.get("token_endpoint_auth_method") or (METHODS[0] if secret else METHODS[2])
    if method not in METHODS:
        raise _fault(name, f"token_endpoint_auth_method must be one of: {', '.join(METHODS)}")
    if bool(secret) == (method == "none"):
        raise _fault(name, "a client_secret and token_endpoint_auth_method do not go together")
    issuer = _text(name, members, "issuer", needed=False)
    iss_required = _truth(name, members, "iss_required")
    if iss_required and not issuer:
        raise _fault(name, "iss_required needs an issuer")
    return OAuthProvider(
        name=name,
        client_id=_text(name, members, "client_id"),
        client_secret=secret,
        authorization_endpoint=_endpoint(name, members, "authorization_endpoint"),
        token_endpoint=_endpoint(name, members, "token_endpoint"),
        revocation_endpoint=_endpoint(name, members, "revocation_endpoint", needed=False),
        issuer=issuer,
        iss_required=iss_required,
        scopes=_scopes(name, members.get("scopes", [])),
        authorization_params=_params(name, members.get("authorization_params", {})),
        token_endpoint_auth_method=method,
        one_grant=_truth(name, members, "one_grant"),
    )


def _text(name: str, members: Mapping[str, Any], member: str, *, needed: bool = True) -> str:
    value = members.get(member, "")
    if not isinstance(value, str) or (needed and not value):
        raise _fault(name, f"{member} must be a string" + (" that is not empty" if needed else ""))
    return value


def _endpoint(name: str, members: Mapping[str, Any], member: str, *, needed: bool = True) -> str:
    """Returns an https address; plain http is allowed on this machine only."""
    value = _text(name, members, member, needed=needed)
    if not value:
        return ""
    try:
        parts = urlsplit(value)
        _ = parts.port
    except ValueError:
        raise _fault(name, f"{member} is not an address") from None
    if not parts.hostname or parts.username or parts.fragment or not value.isascii():
        raise _fault(name, f"{member} must be an address without userinfo or a fragment")
    if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback(value)):
        raise _fault(name, f"{member} must be an https address")
    return value


def _scopes(name: str, value: Any) -> tuple[str, ...]:
    scopes = value.split() if isinstance(value, str) else value
    if not isinstance(scopes, list) or not all(
        isinstance(each, str) and re.fullmatch(r"[!-~]+", each) for each in scopes
    ):
        raise _fault(name, "scopes must be a list of words, or one text with spaces")
    return tuple(scopes)


def _params(name: str, value: Any) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(each, str) for each in value.values()):
        raise _fault(name, "authorization_params must be an object of texts")
    if reserved := sorted(RESERVED & value.keys()):
        raise _fault(name, f"authorization_params cannot hold {', '.join(reserved)}")
    return dict(value)


def _truth(name: str, members: Mapping[str, Any], member: str) -> bool:
    value = members.get(member, False)
    if not isinstance(value, bool):
        raise _fault(name, f"{member} must be true or false")
    return value


def _fault(name: str, sentence: str) -> ValidationError:
    return ValidationError(f"{name}: {sentence}.")
