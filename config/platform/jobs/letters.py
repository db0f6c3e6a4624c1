"""Mails as they are written, one text each, and both of their parts, which so say the same.

The text begins with its subject. Empty lines part paragraphs; ``[Choose a password] https://…`` is a button, and
a line of ``---`` begins the small print. Only an address of this service becomes a link, whatever a name in it holds.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from django.conf import settings
from django.template.loader import render_to_string

PRODUCT = "Shell backend"
BUTTON = re.compile(r"\[([^\]\n]+)\] (\S+)")


class Letter(NamedTuple):
    subject: str
    text: str
    html: str


class Part(NamedTuple):
    """A paragraph, or a button with its label and address."""

    # Each with whether it is an address of this service.
    lines: list[tuple[str, bool]]
    label: str = ""
    href: str = ""
    is_small: bool = False


def letter(written: str) -> Letter:
    """The parts of a mail, of its text as it is written."""
    subject, *paragraphs = re.split(r"\n{2,}", written.strip())
    parts = list(_parts(paragraphs))
    text = "\n\n".join(
        f"{part.label}:\n\n{part.href}" if part.href else "\n".join(line for line, _ in part.lines)
        for part in parts
    )
    shown = {"subject": subject, "parts": parts, "product": PRODUCT}
    html = render_to_string("mail/letter.html", shown)
    return Letter(" ".join(subject.split()), f"{text}\n\n{PRODUCT}\n", html)


def _parts(paragraphs: list[str]) -> Iterator[Part]:
    is_small = False
    for paragraph in paragraphs:
        button = BUTTON.fullmatch(paragraph)
        if paragraph == "---":
            is_small = True
        elif button and _is_ours(button[2]):
            yield Part([], button[1], button[2], is_small)
        else:
            lines = paragraph.splitlines()
            yield Part([(line, _is_ours(line)) for line in lines], is_small=is_small)


def _is_ours(text: str) -> bool:
    return text.startswith(f"{settings.BASE_URL}/") and " " not in text
