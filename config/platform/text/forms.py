"""Normalizes emails and passwords, which people type in several forms.

An accent may be part of its letter (NFC) or follow it (NFD), and a domain may be written in letters or as its A-label.
An email is stored as it was typed; comparing, rate limiting, hashing and addressing use its normal form.
"""

from unicodedata import normalize

import idna


def password_form(typed: str) -> str:
    """Returns the form of a password that is judged, hashed and checked: NFC only, as in NIST SP 800-63B."""
    return normalize("NFC", typed)


def password_tries(typed: str) -> tuple[str, ...]:
    """Returns the texts that a password's hash may be of, the current form first.

    Earlier releases hashed passwords as typed, in whatever form. Without accents there is one text, else two or three:
    the number depends only on the typed text, so that the time of a check reveals nothing about an account.
    """
    return tuple(dict.fromkeys((password_form(typed), typed, normalize("NFD", typed))))


def email_form(typed: str) -> str:
    """Returns the form of an email that is compared and addressed. Two texts of one form are one mailbox.

    The local part is NFC and lower case, and never folded: ``strauß`` is not ``strauss``. The domain is its A-label
    (IDNA 2008 after UTS 46), or where it has none, only lower case.
    """
    local, at, domain = typed.rpartition("@")
    return _lower(local) + at + _a_label(domain) if at else _lower(typed)


def mail_address(email: str) -> str:
    """Returns the address for mail to an email: its form, except for the case of the local part of one not stored."""
    local, at, domain = email.rpartition("@")
    return normalize("NFC", local) + at + _a_label(domain) if at else email


def email_spellings(email: str) -> set[str]:
    """Returns the usual spellings of an email in lower case: as typed, its form, and that with a domain in letters."""
    form = email_form(email)
    local, at, domain = form.rpartition("@")
    try:
        lettered = local + at + idna.decode(domain)
    except UnicodeError:
        lettered = form
    return {email.lower(), form, lettered}


def _lower(text: str) -> str:
    # Lower case may change the composition, and a composed letter may have a different lower case.
    return normalize("NFC", normalize("NFC", text).lower())


def _a_label(domain: str) -> str:
    lowered = domain.lower()
    try:
        return idna.encode(lowered, uts46=True).decode("ascii")
    except UnicodeError:
        return lowered
