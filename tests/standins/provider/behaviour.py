"""Behaviours of the stand-in provider on demand, given in the last user message:

    [[stand-in: tokens=200 delay=0.05 fault=reset after=3]]

Words are quoted as in a shell; an unknown one is a 400.

    text=TEXT        the answer
    tokens=N         an answer of exactly N tokens, unless max_tokens cuts it
    overrun=N        N tokens more than max_tokens allows
    first=SECONDS    silence before the first byte of the response
    held=yes         silence before the first byte until `POST /__go`
    thinks=N         so many tokens a second are made unseen in these silences, and reported as reasoning
    pause=SECONDS    such a silence in a stream, after N events (after=N)
    mark=TEXT        names the call in `GET /__work`, which says what was made and reported for it
    delay=SECONDS    time between two events of a stream; a one-shot answer comes after as many as it has tokens
    clock=yes        the text of each event is the moment it was due, on the monotonic clock of the host
    usage=no         no usage, although the caller wants it
    send=JSON        these events in place of an answer: a list of strings, one write each (a character is a byte);
                     one-shot: the body
    kept=NAME        the same from a file of the folder STAND_IN_KEPT, so that the prompt is short
    fault=status:N   an error with this status, with `message=TEXT` and `retry_after=TEXT`
    fault=html       a 502 with an HTML page
    fault=reset      a reset connection (RST)
    fault=cut        a connection closed without the end of the HTTP body
    fault=stall      silence for ever
    fault=truncate   the end of the HTTP body, without the rest of the answer
    fault=malformed  an event that is not JSON, then the rest
    fault=error      an error event, then the rest
    fault=gigantic   an event of 5 MiB, then the rest
    after=N          the fault of a stream comes after N events; 0, the default: after the headers alone

In a one-shot answer `reset`, `cut` and `stall` come before any byte, with `after` in the middle of the body;
`truncate` and `malformed` send half the JSON under a right length, `error` the error object with status 200.
"""

import json
import os
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import get_type_hints

DIRECTIVE = re.compile(r"\[\[stand-in:(.*)\]\]", re.DOTALL)
KEPT = re.compile("[0-9a-f]{16}")
FAULT = re.compile(r"(status:[45]\d\d|html|reset|cut|stall|truncate|malformed|error|gigantic)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Behaviour:
    """The wishes of one request; the defaults are a good provider."""

    text: str = ""
    tokens: int = 0
    overrun: int = 0
    first: float = 0.0
    held: str = "no"
    thinks: int = 0
    pause: float = 0.0
    mark: str = ""
    delay: float = 0.0
    clock: str = "no"
    usage: str = "yes"
    send: str = ""
    fault: str = ""
    after: int = 0
    message: str = ""
    retry_after: str = ""

    def writes(self) -> Iterator[bytes]:
        """The given events."""
        return (each.encode("latin-1") for each in json.loads(self.send))


KINDS = get_type_hints(Behaviour)


def split_directive(message: str) -> tuple[Behaviour, str]:
    """The behaviour that a message names, and the rest of it; raises ValueError if that is not understood."""
    found = DIRECTIVE.search(message)
    if found is None:
        return Behaviour(), message
    given = dict(word.split("=", 1) for word in shlex.split(found[1]))
    if (name := given.pop("kept", None)) is not None:
        given["send"] = _kept(name)
    if unknown := given.keys() - KINDS.keys():
        raise ValueError(f"unknown words: {', '.join(sorted(unknown))}")
    asked = Behaviour(**{name: KINDS[name](value) for name, value in given.items()})
    if not FAULT.fullmatch(asked.fault):
        raise ValueError(f"unknown fault: {asked.fault}")
    return asked, message.replace(found[0], "")


def _kept(name: str) -> str:
    if not KEPT.fullmatch(name) or not (folder := os.environ.get("STAND_IN_KEPT")):
        raise ValueError("nothing is kept by this name")
    return (Path(folder) / name).read_text()
