"""The installation's fingerprint, and what a person does about devices and the password.

``call`` is the shell's request with its access token: ``call(method, path, json=...)`` (`shell.py` has one).
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import requests

Call = Callable[..., requests.Response]


def device_fp(settings: Path) -> str:
    """A random name of this installation, for every sign-in and refresh; nothing of the hardware is in it."""
    file = settings / "device"
    if not file.exists():
        file.write_text(str(uuid4()))
    return file.read_text()


def devices(call: Call) -> list[dict[str, Any]]:
    """Lists the sessions of the person, with ``device_fp`` and last use; ``current`` is this shell."""
    sessions: list[dict[str, Any]] = call("GET", "/v1/auth/sessions").json()["sessions"]
    return sessions


def end(call: Call, session: dict[str, Any]) -> None:
    """Ends a lost device's session: its next call answers 401, its streams end within 15 seconds."""
    call("DELETE", f"/v1/auth/sessions/{session['id']}").raise_for_status()


def change_password(call: Call, current: str, new: str) -> list[str]:
    """Returns the faults of the new password; none once it counts, and then everybody signs in again."""
    answer = call("POST", "/v1/auth/password/change", json={"current": current, "new": new})
    if answer.status_code == 400:
        return [fault["detail"] for fault in answer.json()["errors"]]
    answer.raise_for_status()
    return []


def forgot_password(base_url: str, email: str) -> str:
    """Returns a text to show, whether or not the service knows the email; the mailed link opens one of its pages."""
    body = {"email": email}
    requests.post(f"{base_url}/v1/auth/password/reset", json=body, timeout=30).raise_for_status()
    return "If we know this address, a mail with a link is on its way. The link is good for 30 minutes."
