"""A provider's words without anything that names our credential, or the account that it is for."""

import re

from django.conf import settings

MAX_DETAIL = 500
# Of longer words no more is looked at: what is left out may make up for what is cleaned away.
_LOOKED_AT = 4 * MAX_DETAIL
# So many characters of a key in a row are no chance. Of its ends providers show fewer, as words of their own.
_PART = 6
_ENDS = (4, 5)

# Who says this speaks of how we have introduced ourselves.
_OF_A_CREDENTIAL = re.compile(r"\bbearer\b", re.IGNORECASE)
_IN_A_WORD = r"[^\s'\"`,;:=(){}\[\]<>]"
# Addresses, the names of accounts, and words that are masked, a mail address, or begin as ids and keys do.
_OURS = re.compile(
    r"https?://\S+"
    r"|\b(?:accounts?|org(?:ani[sz]ation)?s?|projects?|teams?|tenants?|workspaces?|subscriptions?)"
    r"(?:[ _-]?(?:ids?|numbers?|names?))?"
    r"(?:/[\w.-]+|\s*[:=#]\s*['\"`]?[\w.-]+|[\s(]*['\"`][^'\"`\s]+|[\s(]+(?=[\w-]*\d)[\w.-]+)"
    rf"|(?<!{_IN_A_WORD}){_IN_A_WORD}*?"
    r"(?:\*\*|••|x{4}|\.{3}|…|\w@\w|\b(?:sk|gsk|pk|rk|org|proj|key|acct|wrkspc)[-_][\w-]{4})"
    rf"{_IN_A_WORD}*",
    re.IGNORECASE,
)


def cleaned(message: str) -> str | None:
    """What of a provider's message may be told, in one piece; None where it may name the credential itself."""
    message = message[:_LOOKED_AT]
    if _OF_A_CREDENTIAL.search(message) or _shows(settings.LLM_API_KEY(), message):
        return None
    return _OURS.sub("…", message)[:MAX_DETAIL]


def _shows(key: str, message: str) -> bool:
    """Whether a message has a part of the key, or one of its ends."""
    key, message = key.lower(), message.lower()
    size = min(_PART, len(key)) or 1
    if any(key[at : at + size] in message for at in range(len(key) - size + 1)):
        return True
    if len(key) <= 2 * _PART:
        return False
    ends = "|".join(re.escape(end) for size in _ENDS for end in (key[:size], key[-size:]))
    return re.search(rf"(?<![^\W_])(?:{ends})(?![^\W_])", message) is not None
