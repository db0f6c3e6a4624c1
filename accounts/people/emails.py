"""Validates email addresses."""

import unicodedata

from django.core.exceptions import ValidationError
from django.core.validators import validate_email

# Control and format characters (bidirectional, zero-width), private use, surrogates, and line and paragraph separators.
INVISIBLE = frozenset({"Cc", "Cf", "Co", "Cs", "Zl", "Zp"})


def is_email(text: str) -> bool:
    """Returns whether a text is an email address without invisible characters."""
    if any(unicodedata.category(each) in INVISIBLE for each in text):
        return False
    try:
        validate_email(text)
    except ValidationError:
        return False
    return True
