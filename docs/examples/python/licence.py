"""The licence of a shell: when to ask again and what to show, also for 72 hours without the service.

Needs `pyjwt[crypto]`, and in the build the folder that `manage.py export_public_keys` wrote.
"""

import secrets
import time
from datetime import datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import jwt

FOREGROUND, BACKGROUND = 60, 6 * 3600
BANNER_AFTER, OFFLINE = 60, 72 * 3600


def pause(*, in_front: bool, retry_after: str | None = None) -> float:
    """Seconds until the next question, with a little chance so that an office does not ask at once."""
    usual = FOREGROUND if in_front else BACKGROUND
    told = min(_seconds(retry_after or ""), BACKGROUND)
    return max(usual, told) * (1 + secrets.randbelow(100) / 1000)


def _seconds(retry_after: str) -> float:
    """A proxy may answer for the service, and name a date instead of seconds."""
    try:
        if retry_after.isdecimal():
            return int(retry_after)
        return parsedate_to_datetime(retry_after).timestamp() - time.time()
    except ValueError:
        return 0


def shown(
    last: dict[str, Any],
    *,
    is_outdated: bool,
    failing_since: float | None,
    access: str,
    keys: Path,
    base_url: str,
    now: float,
) -> str:
    """``working``, ``update``, ``banner`` or ``locked``.

    ``last`` is the last 200 of `/v1/license/status`, ``is_outdated`` whether the shell is below its `minimum_version`
    (``is_below`` of shell.py). ``failing_since`` is when the first question after the service's last answer failed,
    None if none has: 429 and 5xx are answers too, and never a suspension.
    """
    if last["status"] == "suspended":
        return "locked"
    if failing_since is None and is_outdated:
        # The update screen alone. A shell that cannot ask goes on: the minimum may have been withdrawn.
        return "update"
    # A clock that was set back proves nothing.
    if failing_since is None or 0 <= now - failing_since < BANNER_AFTER:
        return "working"
    until = last.get("grace_until")
    if until and now > datetime.fromisoformat(until).timestamp():
        return "locked"
    return "banner" if is_good_offline(access, keys, base_url, now=now) else "locked"


def message(last: dict[str, Any], *, closed: set[str], now: float) -> dict[str, Any] | None:
    """The operators' message to show, unless its person has closed it: ``level`` and plain ``text``."""
    told: dict[str, Any] | None = last.get("message")
    if not told or told["id"] in closed:
        return None
    until = told.get("until")
    return None if until and now > datetime.fromisoformat(until).timestamp() else told


def update_check(last: dict[str, Any], *, built_for: str, version: str) -> dict[str, str]:
    """The channel and versions to ask `/v1/updates/manifest` for, as operators have decided."""
    shell = last.get("shell", {})
    asked = {"ch": shell.get("channel", built_for), "current_version": version}
    return asked | ({"version": shell["version"]} if "version" in shell else {})


def is_good_offline(access: str, keys: Path, base_url: str, *, now: float) -> bool:
    """Returns whether the service signed this token, its hour aside, within the last 72 hours."""
    try:
        kid = jwt.get_unverified_header(access)["kid"]
        known = {each.stem: each.read_text() for each in keys.glob("*.pem")}
        claims: dict[str, Any] = jwt.decode(
            access,
            known[kid],
            algorithms=["RS256"],
            issuer=base_url,
            options={"verify_exp": False, "verify_iat": False, "verify_aud": False},
        )
    except (jwt.InvalidTokenError, KeyError):
        return False
    # A minute is for clocks that differ.
    return -60 < now - float(claims["iat"]) < OFFLINE
