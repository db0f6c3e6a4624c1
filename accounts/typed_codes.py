"""Random codes that people type: no letter is easily misread, and dashes, spaces and case do not matter."""

import secrets

LETTERS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
GROUP = 4
_MISREAD = str.maketrans("OIL", "011")


def new_code(length: int) -> str:
    return "".join(secrets.choice(LETTERS) for _ in range(length))


def grouped(code: str) -> str:
    """A code as it is shown."""
    return "-".join(code[at : at + GROUP] for at in range(0, len(code), GROUP))


def as_typed(text: str) -> str:
    """A code as it was made, from what somebody typed."""
    return "".join(text.split()).replace("-", "").upper().translate(_MISREAD)
