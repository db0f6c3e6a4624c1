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
    # A quote that comes at once closes the name of a member.
    r"(?:/[\w.-]+|\s*[:=#]\s*['\"`]?[\w.-]+|[\s(]+['\"`][^'\"`]+['\"`]|[\s(]+(?=[\w-]*\d)[\w.-]+)"
    rf"|(?<!{_IN_A_WORD}){_IN_A_WORD}*?"
    r"(?:\*\*|••|x{4}|\.{3}|…|\w@\w|\b(?:sk|gsk|pk|rk)[-_][\w-]{4}|\b(?:org|proj|key|acct|wrkspc)[-_](?=[\w-]*\d)[\w-]{4})"
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
    """Whether a message has a part of the key, or one of its ends. The key of a server next door may be a mere word."""
    if len(key) < 2 * _PART:
        return _is_random(key) and key in message
    parts = (key[at : at + _PART] for at in range(len(key) - _PART + 1))
    if key in message or any(_is_random(part) and part in message for part in parts):
        return True
    ends = [key[:size] for size in _ENDS if _is_cut(key[:size], key[size])]
    ends += [key[-size:] for size in _ENDS if _is_cut(key[-size:], key[-size - 1])]
    if not ends:
        return False
    either = "|".join(map(re.escape, ends))
    return re.search(rf"(?<![^\W_])(?:{either})(?![^\W_])", message) is not None


def _is_cut(end: str, beside: str) -> bool:
    """Whether an end of a key is no whole word that it begins or ends with."""
    return _is_random(end) or (end.isalnum() and beside.isalnum())


def _is_random(part: str) -> bool:
    """Whether it reads as no word, as what begins all keys of a kind does."""
    return any(map(str.isdigit, part)) or not (part.islower() or part.isupper())
