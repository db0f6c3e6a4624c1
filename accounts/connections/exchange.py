"""Posts one form to a provider for Authlib's client, within a time and a size; no error holds a secret."""

import json
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from authlib.oauth2 import ClientAuth

from config import http

# For everything together. A lease of a refresh lasts longer than this.
MOST_SECONDS = 15.0
MOST_BYTES = 64 * 1024
HEADERS = {
    "Accept": "application/json",
    "Content-Type": "application/x-www-form-urlencoded",
    "User-Agent": "shell-connections",
}


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
    """The session that Authlib's client posts through."""

    def post(
        self,
        url: str,
        data: Mapping[str, str],
        headers: Mapping[str, str] | None = None,
        auth: ClientAuth | None = None,
    ) -> Answer:
        """Posts a form with the client's authentication. Raises ``config.http.NoAnswer``."""
        prepared: Any = (url, {**HEADERS}, urlencode(data))
        if auth is not None:
            prepared = auth.prepare("POST", *prepared)
        return post(*prepared)


def post(url: str, headers: Mapping[str, str], body: str) -> Answer:
    """Posts a form's body. Raises ``config.http.NoAnswer``."""
    with http.exchange(
        "POST",
        url,
        headers=headers,
        body=body.encode("ascii"),
        limit=MOST_BYTES,
        silence=MOST_SECONDS,
        deadline=time.monotonic() + MOST_SECONDS,
    ) as answer:
        return Answer(answer.status, dict(answer.headers), answer.read())
