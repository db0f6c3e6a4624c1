"""Hostile bodies: documents that are not JSON, too deep or twofold, and documents with one value that fits nowhere."""

import json
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

DEEP = 100_000
# Stands for a number that Python does not write.
HUGE = "a number of 5,000 digits"

# Bodies that no endpoint may take as JSON, by name.
RAW: dict[str, bytes] = {
    "deep lists": b"[" * DEEP,
    "deep lists that end": b"[" * DEEP + b"]" * DEEP,
    "deep objects": b'{"a":' * DEEP,
    "a deep member": b'{"a":' + b"[" * 5_000 + b"]" * 5_000 + b"}",
    "a list": b"[]",
    "a text": b'"text"',
    "null": b"null",
    "NaN": b'{"a": NaN}',
    "infinity": b'{"a": -Infinity}',
    "a member twice": b'{"a": 1, "a": 2}',
    "not UTF-8": b'{"a": "\xff\xfe"}',
    "UTF-16": '{"a": 1}'.encode("utf-16"),
    "an overlong coding": b'{"a": "\xc0\x80"}',
    "half a document": b'{"a": ',
    "NUL": b"\x00",
    "a form": b"a=%00&b=%ff",
}
# JSON values that a member rarely takes.
VALUES: dict[str, Any] = {
    "null": None,
    "true": True,
    "a negative number": -1,
    "a huge number": 10**40,
    "an endless number": HUGE,
    "a fraction": 1e-320,
    "NUL": "a\x00b",
    "NUL in a name": {"a\x00": "\x00"},
    "a lone surrogate": "\ud800",
    "an empty text": "",
    "combining characters": "a" + "\u0301" * 3_000,
    "a list": [],
    "an object": {},
    "nested": [[[[{"a": [[]]}]]]],
}


def altered(document: Any) -> Iterator[tuple[str, Any]]:
    """The document with each of its values replaced by each hostile one, and what was replaced by what."""
    for place in _places(document):
        for name, value in VALUES.items():
            changed = deepcopy(document)
            container = changed
            for step in place[:-1]:
                container = container[step]
            container[place[-1]] = value
            yield f"{'/'.join(map(str, place))}: {name}", changed


def encoded(document: Any) -> bytes:
    return json.dumps(document).replace(f'"{HUGE}"', "9" * 5_000).encode()


def _places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    children = value.items() if isinstance(value, dict) else enumerate(value)
    for step, child in children:
        yield (*at, step)
        if isinstance(child, dict | list):
            yield from _places(child, (*at, step))
