"""Texts of the kinds that people send, in any length."""

import base64
from hashlib import sha256
from pathlib import Path
from random import Random

FOLDER = Path(__file__).parent
KINDS = (*sorted(path.stem for path in FOLDER.glob("*.txt")), "base64")


def text_of(kind: str, *, characters: int) -> str:
    """A text of a kind and of about that length, always the same one: its lines in ever new orders."""
    if kind == "base64":
        blocks = (sha256(b"%d" % number).digest() for number in range(characters // 42 + 1))
        return base64.b64encode(b"".join(blocks))[:characters].decode()
    lines = (FOLDER / f"{kind}.txt").read_text().splitlines()
    order = Random(kind)
    parts, length = list(lines), sum(map(len, lines))
    while length < characters:
        order.shuffle(lines)
        parts += [f"{len(parts)}", *lines]
        length += sum(map(len, lines))
    return "\n".join(parts)[:characters]
