"""The table of the words by which providers refuse a request for tokens, and of who can mend each refusal.

Providers write the same word in several ways (``invalid_grant``, ``INVALID_GRANT``, ``InvalidGrant``), in several
members, and with any status.
"""

import re
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any


class Meaning(Enum):
    """The party that can mend a refusal."""

    # A dead grant or code: only the person's consent brings another.
    PERSON = "person"
    # The registration of this service with the provider.
    CLIENT = "client"
    # The provider wants to be asked later.
    BUSY = "busy"
    # A fault of the provider or of one request, which says nothing about the grant.
    FAULT = "fault"


_TABLE: Mapping[Meaning, str] = {
    Meaning.PERSON: """
        invalid_grant invalid_token expired_token token_expired token_revoked revoked_token token_inactive
        bad_refresh_token invalid_refresh_token expired_refresh_token revoked_refresh_token
        refresh_token_expired refresh_token_invalid refresh_token_revoked refresh_token_reused
        refresh_token_invalidated refresh_token_already_used refresh_token_not_found
        bad_verification_code bad_auth_code bad_code invalid_code expired_code code_expired code_already_used
        invalid_auth_code invalid_authorization_code
        access_denied authorization_revoked consent_required interaction_required login_required
        account_selection_required reauth_required reauthentication_required reauthorization_required mfa_required
        insufficient_user_authentication unmet_authentication_requirements invalid_rapt rapt_required
        session_expired session_not_found account_inactive inactive_user user_inactive user_disabled user_banned
        user_not_found unverified_user_email
    """,
    Meaning.CLIENT: """
        invalid_client unauthorized_client invalid_client_id invalid_client_secret bad_client_id bad_client_secret
        incorrect_client_credentials
    """,
    Meaning.BUSY: "temporarily_unavailable slow_down rate_limited rate_limit_exceeded too_many_requests",
    Meaning.FAULT: """
        invalid_request invalid_request_error server_error internal_error internal_server_error service_unavailable
        unsupported_grant_type invalid_grant_type invalid_scope invalid_target
        redirect_uri_mismatch bad_redirect_uri invalid_redirect_uri
    """,
}
_MEMBERS = ("error", "error_code", "code", "status")
_SENTENCES = ("error_description", "message", "msg", "reason")
_GRANT = re.compile(r"refresh[ _-]?token|authori[sz]ation[ _-]?code", re.IGNORECASE)
_DEAD = re.compile(r"invalid|expired|revoked|unknown|not found|\bused\b", re.IGNORECASE)


def _plain(word: str) -> str:
    return re.sub(r"[^a-z]", "", word.lower())


WORDS = {_plain(word): meaning for meaning, words in _TABLE.items() for word in words.split()}


def meaning_of(members: Mapping[str, Any]) -> Meaning | None:
    """The meaning of a response's members; None if no word of it is known, or its sentence contradicts the word.

    A fault gives way to a word that says more: ``{"error": {"type": "invalid_request", "code": "token_expired"}}``.
    Some providers call an ended refresh token a fault of the request or the client, and only their sentence shows which
    it is, which is too little to end a grant at once.
    """
    texts = _texts(members, (*_MEMBERS, "type"))
    known = [WORDS[word] for word in map(_plain, texts) if word in WORDS]
    meaning = next((each for each in known if each != Meaning.FAULT), known[0] if known else None)
    if meaning not in {Meaning.FAULT, Meaning.CLIENT}:
        return meaning
    sentence = " ".join(_texts(members, _SENTENCES))
    return None if _GRANT.search(sentence) and _DEAD.search(sentence) else meaning


def _texts(members: Mapping[str, Any], names: Iterable[str]) -> list[str]:
    """The texts of these names in a response and in its error, if that is an object."""
    nested = members.get("error")
    levels = (members, nested if isinstance(nested, dict) else {})
    values = [level.get(name) for level in levels for name in names]
    return [each for each in values if isinstance(each, str)]
