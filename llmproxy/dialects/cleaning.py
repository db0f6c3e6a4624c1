"""Removes from a provider's message what names our credential or account, or its own systems, and what looks secret.

A host is recognised by a scheme, a port, the ending of its name or a word before it, in compatible characters and
escapes too. Not recognised are a single word (*titan*), a name of two parts below another country's domain than those
listed (*firma.at*), one that reads as a place in a request (*messages.0.corp.de*), an address as one decimal number or
with brackets around its dots, and what was encoded twice. Documentation of well-known servers may be linked.
"""

import codecs
import re
from base64 import b32encode, b64encode, b85encode
from collections.abc import Iterator
from html import unescape
from unicodedata import normalize
from urllib.parse import unquote

from config.platform.env.hosts import PRIVATE_ENDINGS
from config.platform.observability.scrubbing import scrubbed

MAX_DETAIL = 500
# Longer messages are cut to this before cleaning, which may shorten them further.
_LOOKED_AT = 4 * MAX_DETAIL
# So many characters of a key in a row are no coincidence. Providers show fewer of its ends, as separate words.
_PART = 6
_ENDS = (4, 5)
# As few letters and digits of a key in another writing.
_CODED_PART = 10
_ESCAPED = re.compile(
    r"\\(?:U0{6}|u00|x|u\{0{0,6})([0-9a-f]{2})\}?|\\([01][0-7]{2})", re.IGNORECASE
)
_INVISIBLE = re.compile("[\u00ad\u200b-\u200f\u2060-\u2064\ufeff]")
_BETWEEN = re.compile(r"[\W_]+")

# These words mean that the message is about our credential, or is of a program's failure.
_NOT_FOR_CALLERS = re.compile(r"\bbearer\b|\bTraceback \(|\bFile \"[^\"]+\", line", re.IGNORECASE)
_IN_A_WORD = r"[^\s'\"`,;:=(){}\[\]<>]"
# Ordinary texts: places in a request, registries of models, and public documentation.
_ORDINARY = re.compile(
    r"""
    (?<![^\s'"`(\[,])
      (?:(?:messages|tools|input|contents|choices|functions)(?:\.\d+|\[\d+\])
        |(?:body|response_format|tool_choice|output_config|thinking|input_schema|parameters|properties)(?=[.\[]))
      (?:\.[\w$-]+|\[\d+\])*(?![\w@\[*•…-]|\.[\w.]|:\d|\\?['"`]?\s?=)
      # What is told of it: the rest of a sentence, or else a value.
      (?=(?P<told>\\?['"`]?:(?!\s(?:[A-Z][a-z]+|must|should|expected)\s[a-z])\s?\S{0,64})?)
    |(?<![\w.@/-])(?:registry\.ollama\.ai|hf\.co|huggingface\.co)/[\w./-]+(?::[\w.-]+)?
    |https://(?:json-schema\.org|errors\.pydantic\.dev|(?:docs|platform)\.claude\.com|docs\.anthropic\.com
      |platform\.openai\.com/docs|api-docs\.deepseek\.com|docs\.(?:vllm|mistral)\.ai|ai\.google\.dev
      |openrouter\.ai/docs)/[\w./\#%-]*(?![\w@:?&=])
    """,
    re.VERBOSE,
)
_ENDINGS = "|".join(each[1:] for each in PRIVATE_ENDINGS).replace(".", r"\.")
# A place that ends as a host does, unless what stands before the ending has members in a request.
_PLACE_AS_HOST = re.compile(
    r"(?:^|[.\]])(?!(?:body|properties|content|text|parameters|metadata|function|arguments|(?:\w+_)?schema|\d+)\.)"
    rf"[\w$-]+\.(?:{_ENDINGS}|com|net|io)$",
    re.IGNORECASE,
)
_HIDDEN_IN_NAMES = re.compile(r"\[(?:key|secret)\]")
# Addresses, names of accounts, masked words, mail addresses, and words with the prefix of an id or a key.
_OURS = re.compile(
    r"(?<!\w)[a-z][a-z0-9+.-]{0,30}://\S*[^\s.,;:)\]}>'\"`]|\barn:\S+"
    r"|\b(?:accounts?|org(?:ani[sz]ation)?s?|projects?|teams?|tenants?|workspaces?|subscriptions?)"
    r"(?:[ _-]?(?:ids?|numbers?|names?))?"
    # A quote that comes at once closes the name of a member. A plain word of small letters is no name.
    r"(?:/[\w.-]+|\s*[:=#]\s*['\"`]?[\w.-]+|[\s(]+['\"`][^'\"`]+['\"`]"
    r"|[\s(]+(?=[\w-]*(?:\d|[-_]\w|(?-i:[A-Z])))[\w.-]+)"
    rf"|(?<!{_IN_A_WORD}){_IN_A_WORD}*?"
    r"(?:\*\*|••|x{4}|(?<!/)\.{3}|…|\w@\w|\b(?:sk|gsk|pk|rk)[-_][\w-]{4}|\b(?:org|proj|acct|wrkspc)-[\w-]{4}"
    r"|\b(?:org|proj|key|acct|wrkspc)[-_](?=[\w-]*(?:\d|(?-i:[A-Z])))[\w-]{4})"
    rf"{_IN_A_WORD}*",
    re.IGNORECASE,
)


# Addresses of a provider's own systems, and shapes of secrets that telemetry does not look for.
_INSIDE = re.compile(
    r"""
    # Names of hosts: by their ending, before a port, after a word that says so. Members of a request are none.
    (?<![\w.-])(?:[a-z0-9_-]{1,63}\.){1,20}(?:ENDINGS|cluster|arpa|test|example|com|net|org|edu|gov|io|ai|dev|cloud|co
      |eu|de|uk|fr|ch|us|cn|jp|info)(?:\.[a-z]{2,12}){0,3}(?![\w[(-]|\.\w)(?::\d{2,5}\b)?
    # Below a domain of another country; these words and endings of files are none.
    |(?<![\w.-])(?:[a-z0-9-]{1,63}\.){2,20}
      (?!id|in|is|no|to|it|so|my|by|do|js|ts|py|rs|sh|go|md|cc|gz)[a-z]{2}(?![\w[(-]|\.\w)(?::\d{2,5}\b)?
    |\blocalhost\b(?::\d{2,5}\b)?
    # Numbers of models are shorter than ports.
    |(?<![\w.-])(?=[\w.]*[-.\d])[a-z][\w.-]{0,252}:(?:80|443|\d{4,5})\b(?![.\d])
    |(?<=\bto\ )[a-z]\w*:\d{2,5}\b
    |\b(?:host(?:name)?|node|pod|upstream|namespace|bucket|worker)[ :=]{1,3}['"`]?
      (?=[\w.-]*(?:[-.]\w|:?\d))[a-z][\w.:-]*\w
    # Numbers of hosts.
    |(?<![\w.])(?<!version\ )(?:0x[0-9a-f]{1,2}|\d{1,4})(?:\.(?:0x[0-9a-f]{1,2}|\d{1,4})){3}(?![\w.]*\d)(?:/\d+)?
      (?::\d{2,5}\b)?
    |\b(?:0x[0-9a-f]{8,}|0[0-7]{10,11}|ip(?:-\d{1,3}){4})\b
    |(?<![\w:])\[?(?=[0-9a-f:]*::|(?:[0-9a-f]+:){5})[0-9a-f:]{2,39}(?:\.\d{1,3}){0,3}(?:%\w+)?(?![\w:])(?:\](?::\d{2,5}\b)?)?
    # Paths of files. Pointers into a request and paths of an API are none.
    |(?<![\w/.<…-])(?:~|\.{1,2})?/(?!(?:v\d\w*|messages|input|tools|content|body|response_format|text|properties)\b)
      [\w.@+-]+(?:/[\w.@+-]+)+/?
    |(?<!\w)(?:[a-z]:|\\)\\[^\s'"`]+
    |(?<![\w/])(?:[\w.-]{1,99}/){1,9}[\w.-]{1,99}\.(?:py|so|bin|json|ya?ml|toml|gguf|safetensors|conf|env)\b(?::\d+)?
    # Secrets.
    |(?<![^\W_])(?:account_?key|shared_?access_?key|sig|signature|pass|pw|otp|pin|server|host(?:name)?|uid)\s?[=]\s?[^\s;]+
    |\bSG\.[\w-]{10,}\.[\w-]+|\bbasic\ (?-i:(?=\w*[a-z][A-Z]))[\w+/=]{8,}
    |\b(?:dop|shp|sq0|dapi|nvapi|r8|fw|tvly|pplx|gsk|xai|AKIA|ASIA)[a-z]{0,5}(?:\d?[-_]|(?=[0-9A-Z]{12}))[\w-]{12,}
    """.replace("ENDINGS", _ENDINGS),
    re.IGNORECASE | re.VERBOSE,
)


def cleaned(message: str, *, key: str) -> str | None:
    """The part of a provider's message that callers may see; None where it may name the credential itself."""
    message = message[:_LOOKED_AT]
    if _NOT_FOR_CALLERS.search(message) or _shows(key, message) or _shows_coded(key, message):
        return None
    said = _without_systems(message)[:MAX_DETAIL]
    plain = _plain(said)
    read = said if plain == said else _without_systems(plain)
    return said if read == plain else read[:MAX_DETAIL]


def _without_systems(text: str) -> str:
    said: list[str] = []
    end = 0
    for found in filter(_is_left, _ORDINARY.finditer(text)):
        said += [_hidden(text[end : found.start()]), found[0]]
        end = found.end()
    return "".join([*said, _hidden(text[end:])])


def _hidden(text: str) -> str:
    return _INSIDE.sub("…", scrubbed(_OURS.sub("…", text)))


def _is_left(found: re.Match[str]) -> bool:
    """Returns whether what reads as ordinary hides no secret, and is not the name of one that follows."""
    if "/" in found[0]:
        # Long names of models look random.
        return not _HIDDEN_IN_NAMES.search(scrubbed(found[0]))
    named = found[0].rpartition(".")[2] + (found["told"] or "")
    secret = scrubbed(_OURS.sub("…", found[0])) != found[0] or _hidden(named) != named
    return not (secret or _PLACE_AS_HOST.search(found[0]))


def _plain(text: str) -> str:
    """A text as it reads: without escapes, compatible characters and those that show nothing."""
    shown = _ESCAPED.sub(_character, unquote(unescape(text)))
    # Our mark would become three dots, and domains take the full stop of Chinese for theirs.
    compatible = normalize("NFKC", shown.replace("…", "\0")).replace("\0", "…")
    return _INVISIBLE.sub("", compatible).replace("。", ".")


def _character(escape: re.Match[str]) -> str:
    return chr(int(escape[1], 16) if escape[1] else int(escape[2], 8))


def _shows(key: str, message: str) -> bool:
    """Returns whether a message shows a part or an end of the key. A local server's key may be a plain word."""
    if len(key) < 2 * _PART:
        return bool(key) and _is_random(key) and key in message
    parts = (key[at : at + _PART] for at in range(len(key) - _PART + 1))
    if key in message or any(_is_random(part) and part in message for part in parts):
        return True
    ends = [key[:size] for size in _ENDS if _is_cut(key[:size], key[size])]
    ends += [key[-size:] for size in _ENDS if _is_cut(key[-size:], key[-size - 1])]
    if not ends:
        return False
    either = "|".join(map(re.escape, ends))
    return re.search(rf"(?<![^\W_])(?:{either})(?![^\W_])", message) is not None


def _shows_coded(key: str, message: str) -> bool:
    """Returns whether a message shows a part of the key escaped, spaced, backwards, in hex or in base64."""
    text = _BETWEEN.sub("", _plain(message)).lower()
    parts = (
        coded[at : at + _CODED_PART]
        for coded in (_BETWEEN.sub("", each).lower() for each in _writings(key))
        for at in range(len(coded) - _CODED_PART + 1)
    )
    return any(part in text and not part.isalpha() for part in parts)


def _writings(key: str) -> Iterator[str]:
    raw = key.encode()
    yield from (key, key[::-1], codecs.encode(key, "rot13"), raw.hex(), "".join(map(str, raw)))
    yield "".join(map(hex, raw))
    yield from (b32encode(raw).decode().rstrip("="), b85encode(raw).decode())
    for shift in range(3):
        # Less the letters that belong to what stands before and after.
        yield b64encode(bytes(shift) + raw).decode()[shift and shift + 1 : -4]


def _is_cut(end: str, beside: str) -> bool:
    """Returns whether an end of a key is not a whole word of it."""
    return _is_random(end) or (end.isalnum() and beside.isalnum())


def _is_random(part: str) -> bool:
    """Returns whether it does not read as a word; the common prefix of a kind of keys does."""
    return any(map(str.isdigit, part)) or not (part.islower() or part.isupper())
