"""Masks apparent tokens, keys, passwords and email addresses in a text.

Secrets get into messages, addresses and headers by accident. A mark replaces only the matching part:

- ``[token]``: JSON Web Tokens, credentials after ``Bearer`` or ``Basic``, 32 or more hexadecimal digits, 32 or more
  characters of base64url with upper case, lower case and digits (except UUIDs), 40 characters of such base64;
- ``[key]``: keys with the prefix of a well-known service (``sk-``, ``AKIA``, ``ghp_`` ...), private keys in PEM;
- ``[email]``: email addresses;
- ``[secret]``: passwords in addresses, and the value after the name of a secret, such as ``password`` or ``token``.

The patterns are heuristics: they mask a long checksum, and miss a short password without a name. Each takes linear
time.
"""

import re
from collections.abc import Callable
from string import ascii_lowercase, digits

# No pattern matches a text shorter than `a@b.cc`.
_SHORTEST = 6

_MIXED = re.compile(r"(?=[^a-z]*[a-z])(?=[^A-Z]*[A-Z])(?=[^0-9]*[0-9])")
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_WORDS = (
    "secret|token|jwt|authorization|cookie|credentials?|passcode|pwd|session[-_ ]?id"
    "|(?:api|access|private|secret)[-_ ]?key"
)
_PASSWORDS = "password|passwd|passphrase"
# Matches the end of a name, to spare numbers such as `max_tokens` and `tokenCount`; a password matches anywhere.
SECRET_NAME = re.compile(rf"{_PASSWORDS}|(?:{_WORDS})[-_ ]?\d*$", re.IGNORECASE)

# Each pattern below needs one of these fragments in lower case, or a long run that is not a UUID.
_SIGN = re.compile(
    "@|%40|eyj|-----|sk-|sk_|ya29\\.|xox|whsec_|bearer|basic|passw|passphrase|secret|token|jwt"
    "|authorization|cookie|credential|passcode|pwd|session|key"
)
_RUN = "a-z0-9_+/-"
_LONG = re.compile(rf"(?<![{_RUN}])(?!{_UUID.pattern}(?![{_RUN}]))[{_RUN}]{{16}}")
_ALIKE = str.maketrans(dict.fromkeys(f"{ascii_lowercase}{digits}_+/-", "0"))
_LONG_ALIKE = "0" * 16


def _token_if_random(match: re.Match[str]) -> str:
    text = match[0]
    return "[token]" if _MIXED.match(text) and not _UUID.fullmatch(text) else text


_Mark = str | Callable[[re.Match[str]], str]
# Each with lower-case fragments, of which it needs one: otherwise many short texts would take 20 µs each.
_PATTERNS: tuple[tuple[tuple[str, ...], re.Pattern[str], _Mark], ...] = (
    (
        ("-----begin",),
        re.compile(
            r"-----BEGIN (?:[A-Z0-9]++ ){0,3}?PRIVATE KEY-----(?s:.*?)"
            # Nothing possessive before a lookahead: Python 3.11.2 continues after the text that the lookahead has seen.
            r"(?:-----END (?:[A-Z0-9]++ ){0,3}?PRIVATE KEY-----|(?=-----END)|\Z)"
        ),
        "[key]",
    ),
    (("eyj",), re.compile(r"(?<![\w-])eyJ[\w-]{5,}+(?:\.[\w=-]*+){1,4}+"), "[token]"),
    (("bearer",), re.compile(r"(?i)(?<!\w)(bearer\s{1,4})[\w.~+/=-]{8,}+"), r"\1[token]"),
    (
        ("basic",),
        re.compile(r"(?i)(?<!\w)(basic\s{1,4})(?=[a-z+/]*+[0-9=])[\w+/=-]{8,}+"),
        r"\1[token]",
    ),
    (
        ("-", "_", "akia", "asia", "aiza", "ya29."),
        re.compile(
            r"(?<![A-Za-z0-9])(?:"
            r"sk-[\w-]{12,}+|[spr]k_(?:live|test)_\w{8,}+|whsec_[\w+/=]{8,}+"
            r"|(?:AKIA|ASIA)[0-9A-Z]{16}|AIza[\w-]{30,}+|ya29\.[\w.-]{10,}+"
            r"|gh[opusr]_\w{16,}+|github_pat_\w{16,}+|glpat-[\w-]{16,}+"
            r"|xox[a-z]-[\w-]{10,}+|npm_\w{20,}+|hf_\w{20,}+|pypi-[\w-]{20,}+)"
        ),
        "[key]",
    ),
    (("://",), re.compile(r"(://)[^/\s:@]{1,256}+:[^/\s@]{1,256}+@"), r"\1[secret]@"),
    (
        ("=", ":"),
        re.compile(
            # Parsers report an unexpected token, which is punctuation or a plain word.
            r"(?i)(?<![\w-])(?!(?<=unexpected )token:\s?(?=\S)"
            r"[^\w\s]{0,4}(?-i:[A-Z]?[a-z_]{0,20}|[A-Z_]{1,20})[^\w\s]{0,4}(?!\S))"
            rf"([\w-]*?(?:{_PASSWORDS}|{_WORDS})\\?[\"']?\s?[=:]\s?\\?[\"']?)"
            r"(?:(?:token|digest|api-?key)\s(?=[\w.~+/=-]{8}))?(?!\[|\W{1,2}(?!\S))[^\s&;,\"'\\]++"
        ),
        r"\1[secret]",
    ),
    (
        ("@", "%40"),
        re.compile(
            r"(?<![\w.+-])[\w.+-]++(?:@|%40)(?:[\w-]++\.)+(?:xn--[\w-]++|[^\W\d_]{2,}+)(?![\w-])"
        ),
        "[email]",
    ),
)
# Long, mixed texts come last; none is shorter than this.
_SHORTEST_RUN = 30
_RUNS: tuple[tuple[re.Pattern[str], _Mark], ...] = (
    (re.compile(r"(?<![0-9A-Za-z])(?:0x)?[0-9a-fA-F]{32,}+(?![0-9A-Za-z])"), "[token]"),
    (re.compile(r"(?<![\w/+=-])[A-Za-z0-9/+]{40}(?![\w/+=-])"), _token_if_random),
    (re.compile(r"(?<![\w/+=-])[A-Za-z0-9/+]{30,}+={1,2}+"), _token_if_random),
    (re.compile(r"(?<![\w+-])[\w+-]{32,}+={0,2}+"), _token_if_random),
)


def is_suspect(text: str) -> bool:
    """Returns whether any pattern could match a text or a value written as JSON; most cannot."""
    small = text.lower()
    if _SIGN.search(small):
        return True
    # The quick check first: most texts have no long run.
    return _LONG_ALIKE in small.translate(_ALIKE) and _LONG.search(small) is not None


def scrubbed(text: str) -> str:
    """Returns the text with apparent secrets masked."""
    if len(text) < _SHORTEST or not is_suspect(text):
        return text
    small, length = text.lower(), len(text)
    for signs, pattern, mark in _PATTERNS:
        if any(map(small.__contains__, signs)):
            text = pattern.sub(mark, text)
    for pattern, mark in _RUNS if length >= _SHORTEST_RUN else ():
        text = pattern.sub(mark, text)
    return text
