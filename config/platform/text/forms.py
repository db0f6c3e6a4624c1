"""The one form of an email and of a password, which people type in several.

An accent may be part of its letter (NFC) or follow it (NFD), and a domain be written in letters or as its A-label. An
email stays stored as it was typed; what is compared, limited, hashed and addressed has one form.
"""

from unicodedata import normalize

import idna


def password_form(typed: str) -> str:
    """A password as it is judged, hashed and checked: NFC, as NIST SP 800-63B has it. Nothing else is changed."""
    return normalize("NFC", typed)


def password_tries(typed: str) -> tuple[str, ...]:
    """The texts of which the hash of a password may be, the one of today first.

    Releases before hashed what was typed, in whatever form. Without accents there is one text, else two or three: the
    number depends on the typed text alone, so that the time of a check tells nothing of an account.
    """
    return tuple(dict.fromkeys((password_form(typed), typed, normalize("NFD", typed))))


def email_form(typed: str) -> str:
    """An email as it is compared and addressed. Two texts of one form are one mailbox.

    The local part is NFC and lower case, and never folded: ``strauß`` is not ``strauss``. The domain is its A-label
    (IDNA 2008 after UTS 46), or where it has none, lower case as it stands.
    """
    local, at, domain = typed.rpartition("@")
    return _lower(local) + at + _a_label(domain) if at else _lower(typed)


def mail_address(email: str) -> str:
    """The address that mail for an email goes to: its form, but for the case of the local part of one not stored."""
    local, at, domain = email.rpartition("@")
    return normalize("NFC", local) + at + _a_label(domain) if at else email


def email_spellings(email: str) -> set[str]:
    """The texts by which an email is usually written, in lower case: as it is, its form, and that in letters."""
    form = email_form(email)
    local, at, domain = form.rpartition("@")
    try:
        lettered = local + at + idna.decode(domain)
    except UnicodeError:
        lettered = form
    return {email.lower(), form, lettered}


def _lower(text: str) -> str:
    # Lower case may recompose, and a composed letter may have another lower case.
    return normalize("NFC", normalize("NFC", text).lower())


def _a_label(domain: str) -> str:
    stands = domain.lower()
    try:
        return idna.encode(stands, uts46=True).decode("ascii")
    except UnicodeError:
        return stands
