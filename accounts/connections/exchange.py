"""One form posted to a provider and its answer, within a time and a size.

Whatever the server does, the call ends in time. Nothing that is raised here holds an address, a header or a body.
"""

import json
import time
from collections.abc import Mapping
from http.client import HTTPException, HTTPResponse
from typing import Any
from urllib.parse import urlencode, urlsplit

from authlib.oauth2 import ClientAuth

from config.deadlines import connected, seconds_left, target

CONNECT_SECONDS = 5.0
# For everything together. A lease of a refresh lasts longer than this.
MOST_SECONDS = 15.0
MOST_BYTES = 64 * 1024
HEADERS = {
    "Accept": "application/json",
    "Accept-Encoding": "identity",
    "Content-Type": "application/x-www-form-urlencoded",
    "User-Agent": "shell-connections",
}


class NoAnswer(Exception):
    """There is none. ``timed_out``: for lack of time; ``sent``: the provider may have done what was asked."""

    def __init__(self, *, timed_out: bool, sent: bool) -> None:
        self.timed_out = timed_out
        self.sent = sent
        super().__init__("timed out" if timed_out else "no answer")


class Answer:
    """An answer as far as it matters, in the form in which Authlib reads answers."""

    def __init__(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self.status_code = status
        self.headers = headers
        self._body = body

    def json(self) -> Any:
        """The document of the body; raises ValueError where it is none."""
        try:
            return json.loads(self._body)
        except RecursionError:
            raise ValueError("nested too deep") from None

    def members(self) -> dict[str, Any]:
        """The document's members; none where it is no object."""
        try:
            document = self.json()
        except ValueError:
            return {}
        return document if isinstance(document, dict) else {}


class Session:
    """What Authlib's client posts through. ``answer`` is the last answer, ``None`` before there is one."""

    def __init__(self) -> None:
        self.answer: Answer | None = None

    def post(
        self,
        url: str,
        data: Mapping[str, str],
        headers: Mapping[str, str] | None = None,
        auth: ClientAuth | None = None,
    ) -> Answer:
        """Posts a form with the client's authentication. Raises ``NoAnswer``."""
        said: Any = (url, {**HEADERS}, urlencode(data))
        if auth is not None:
            said = auth.prepare("POST", *said)
        self.answer = post(*said)
        return self.answer


def post(url: str, headers: Mapping[str, str], body: str) -> Answer:
    """Posts a form's body. Raises ``NoAnswer``."""
    deadline, sent = time.monotonic() + MOST_SECONDS, False
    address = urlsplit(url)
    try:
        with connected(address, silence=CONNECT_SECONDS, deadline=deadline) as connection:
            # From here on a silence may last as long as there is time.
            connection.sock.settimeout(seconds_left(deadline))
            sent = True
            connection.request(
                "POST", target(address), body=body.encode("ascii"), headers=dict(headers)
            )
            with connection.getresponse() as response:
                return _read(response, deadline)
    except (OSError, HTTPException) as error:
        late = isinstance(error, TimeoutError) or time.monotonic() >= deadline
        raise NoAnswer(timed_out=late, sent=sent) from None


def _read(response: HTTPResponse, deadline: float) -> Answer:
    body = response.read(MOST_BYTES + 1)
    if time.monotonic() >= deadline:
        raise TimeoutError
    if len(body) > MOST_BYTES or response.length:
        # Too long, or cut off: no whole answer either way.
        raise HTTPException
    return Answer(response.status, dict(response.headers.items()), body)
