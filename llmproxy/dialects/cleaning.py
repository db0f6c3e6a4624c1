"""Removes from a provider's message all that names our credential or account."""

import re

MAX_DETAIL = 500
# Longer messages are cut to this before cleaning, which may shorten them further.
_LOOKED_AT = 4 * MAX_DETAIL
# So many characters of a key in a row are no coincidence. Providers show fewer of its ends, as separate words.
_PART = 6
_ENDS = (4, 5)

# This word means that the message is about our credential.
_OF_A_CREDENTIAL = re.compile(r"\bbearer\b", re.IGNORECASE)
_IN_A_WORD = r"[^\s'\"`,;:=(){}\[\]<>]"
# Addresses, names of accounts, masked words, mail addresses, and words with the prefix of an id or a key.
_OURS = re.compile(
    r"https?://\S+"
    r"|\b(?:accounts?|org(?:ani[sz]ation)?s?|projects?|teams?|tenants?|workspaces?|subscriptions?)"
    r"(?:[ _-]?(?:ids?|numbers?|names?))?"
    # A quote that comes at once closes the name of a member. A plain word of small letters is no name.
    r"(?:/[\w.-]+|\s*[:=#]\s*['\"`]?[\w.-]+|[\s(]+['\"`][^'\"`]+['\"`]"
    r"|[\s(]+(?=[\w-]*(?:\d|[-_]\w|(?-i:[A-Z])))[\w.-]+)"
    rf"|(?<!{_IN_A_WORD}){_IN_A_WORD}*?"
    r"(?:\*\*|••|x{4}|\.{3}|…|\w@\w|\b(?:sk|gsk|pk|rk)[-_][\w-]{4}|\b(?:org|proj|acct|wrkspc)-[\w-]{4}"
    r"|\b(?:org|proj|key|acct|wrkspc)[-_](?=[\w-]*(?:\d|(?-i:[A-Z])))[\w-]{4})"
    rf"{_IN_A_WORD}*",
    re.IGNORECASE,
)


def cleaned(message: str, *, key: str) -> str | None:
    """The part of a provider's message that callers may see; None where it may name the credential itself."""
    message = message[:_LOOKED_AT]
    if _OF_A_CREDENTIAL.search(message) or _shows(key, message):
        return None
    return _OURS.sub("…", message)[:MAX_DETAIL]


def _shows(key: str, message: str) -> bool:
    """Whether a message shows a part of the key, or one of its ends. The key of a local server may be a plain word."""
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
    """Whether an end of a key is not a whole word of it."""
    return _is_random(end) or (end.isalnum() and beside.isalnum())


def _is_random(part: str) -> bool:
    """Whether it does not read as a word; the common prefix of a kind of keys does."""
    return any(map(str.isdigit, part)) or not (part.islower() or part.isupper())
