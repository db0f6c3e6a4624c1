"""Renders a mail's plain-text and HTML parts from one text, so that both say the same.

The text begins with its subject. Empty lines separate paragraphs; ``[Choose a password] https://…`` is a button, and
a line of ``---`` begins the small print. Only an address of this service becomes a link, so names in a text cannot
make one.
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

    # The lines, and whether each is an address of this service.
    lines: list[tuple[str, bool]]
    label: str = ""
    href: str = ""
    is_small: bool = False


def letter(written: str) -> Letter:
    """Returns the parts of a mail from its text."""
    subject, *paragraphs = re.split(r"\n{2,}", written.strip())
    parts = list(_parts(paragraphs))
    text = "\n\n".join(
        f"{part.label}:\n\n{part.href}" if part.href else "\n".join(line for line, _ in part.lines)
        for part in parts
    )
    context = {"subject": subject, "parts": parts, "product": PRODUCT}
    html = render_to_string("mail/letter.html", context)
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
