"""Judges a new password by zxcvbn's estimate of the guesses that it withstands, beside a list of common ones.

``common_passwords.txt.gz``, which Django's own validator reads, is made by ``tests.supply.common_passwords``.
"""

import re
from itertools import chain
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.core.exceptions import ValidationError
from zxcvbn import zxcvbn

from accounts.models import User
from config.platform.concurrency.greenlets import WorkerThread
from config.platform.db.connections import release_connection
from config.platform.text.forms import password_form

# Of 4: a hundred million guesses, or ten thousand million where it is one word and something beside it, because the
# library takes the year and the signs after a word for random ones.
GOOD_ENOUGH, FOR_ONE_WORD = 3, 4
# The library's time grows faster than the length; the rest of a password is not looked at.
JUDGED_LENGTH = 72
PRODUCT = ("shell backend", "desktop shell")
WORD = re.compile(r"[^\W\d_]{3,}")
# Signs that stand for letters. The library tries every way to read them: 72 of them would take 20 s, six kinds half a
# second. Of more kinds, those that stand for the same letter count as one.
STAND_INS = frozenset("48@({[<3691!|70$5+%2")
SAME_LETTER = str.maketrans("@{[<9!|+5", "4(((6117$")

TOO_WEAK = "This password is easy to guess."
OF_CONTEXT = "It is little more than your email, your company's name or the name of this product."
ONE_WORD = "It is one word with digits or symbols."
ADVICE = "Use several unrelated words."

_judging = WorkerThread("Many passwords are being chosen just now. Please try again in a moment.")


class StrengthValidator:
    """Django's password validator by zxcvbn, which knows the person's email, their client and the product.

    A password below ``min_length`` is left to the validator of lengths, whose sentence is enough.
    """

    def __init__(self, min_length: int) -> None:
        self.min_length = min_length

    def validate(self, password: str, user: Any = None) -> None:
        if len(password) < self.min_length:
            return
        context = _context(user)
        # The estimate may wait for its turn, and takes a second for the worst password: sign-ins do not wait for it.
        release_connection()
        with _judging.share_of(user and user.pk):
            why = _judging.run(_weakness, password[:JUDGED_LENGTH], context)
        if why is not None:
            sentences = " ".join(filter(None, (TOO_WEAK, why, ADVICE)))
            raise ValidationError(sentences, code="password_too_weak")

    def get_help_text(self) -> str:
        return "Several unrelated words make a good password."


def _context(user: User | None) -> list[str]:
    """The words that a guesser tries first for this person: whole names, their words, and the words in one."""
    client = user.client.name if user and user.client_id and user.client else ""
    names = [
        user.email if user else "",
        client,
        urlsplit(settings.BASE_URL).hostname or "",
        *PRODUCT,
    ]
    # In the form of the password, or an accent hides them.
    names = list(map(password_form, names))
    words = [WORD.findall(name.lower()) for name in names]
    joined = ("".join(each) for each in words)
    return list(dict.fromkeys(filter(None, chain(map(str.lower, names), *words, joined))))


def _weakness(password: str, context: list[str]) -> str | None:
    """Returns a sentence on what makes a password weak, perhaps an empty one; None for a good one."""
    if len(STAND_INS.intersection(password)) > 6:
        password = password.translate(SAME_LETTER)
    estimate = zxcvbn(password, user_inputs=context)
    lettered = [part for part in estimate["sequence"] if any(map(str.isalpha, part["token"]))]
    known = [part for part in lettered if part["pattern"] == "dictionary"]
    one_word = len(known) == len(lettered) == 1
    if estimate["score"] >= (FOR_ONE_WORD if one_word else GOOD_ENOUGH):
        return None
    if any(part["dictionary_name"] == "user_inputs" for part in known):
        return OF_CONTEXT
    return ONE_WORD if one_word else str(estimate["feedback"]["warning"])
