"""What counts as an email address here."""

import unicodedata

from django.core.exceptions import ValidationError
from django.core.validators import validate_email

# Control, format (what turns the direction of a text, what has no width), private use, surrogates, and ends of lines.
UNSEEN = frozenset({"Cc", "Cf", "Co", "Cs", "Zl", "Zp"})


def is_email(text: str) -> bool:
    """Whether it has the form of an email, and reads as what it is: nothing unseen is in it."""
    if any(unicodedata.category(each) in UNSEEN for each in text):
        return False
    try:
        validate_email(text)
    except ValidationError:
        return False
    return True
