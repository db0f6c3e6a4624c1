"""Posts one form to a provider for Authlib's client, with limits on time and size; no error contains a secret."""

import json
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from authlib.oauth2 import ClientAuth

from config.http.exchange import exchange_once

# For the whole exchange: its caller has an answer within 15. The lease of a refresh lasts longer.
MOST_SECONDS = 12.0
MOST_BYTES = 64 * 1024
HEADERS = {
    "Accept": "application/json",
    "Content-Type": "application/x-www-form-urlencoded",
    "User-Agent": "shell-connections",
}


class Answer:
    """A response with the attributes that Authlib reads."""

    def __init__(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self.status_code = status
        self.headers = headers
        self._body = body

    @property
    def is_empty(self) -> bool:
        return not self._body.strip()

    def json(self) -> Any:
        """The JSON document of the body. Raises ``ValueError``."""
        try:
            return json.loads(self._body)
        except RecursionError:
            raise ValueError("nested too deep") from None

    def members(self) -> dict[str, Any]:
        """The members of the document, empty unless it is an object."""
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
        """Posts a form with the client's authentication. Raises ``config.http.exchange.ExchangeError``."""
        prepared: Any = (url, {**HEADERS}, urlencode(data))
        if auth is not None:
            prepared = auth.prepare("POST", *prepared)
        return post(*prepared)


def post(url: str, headers: Mapping[str, str], body: str) -> Answer:
    """Posts a form's body. Raises ``config.http.exchange.ExchangeError``."""
    with exchange_once(
        "POST",
        url,
        headers=headers,
        body=body.encode("ascii"),
        limit=MOST_BYTES,
        silence=MOST_SECONDS,
        deadline=time.monotonic() + MOST_SECONDS,
    ) as exchange:
        head = exchange.await_head()
        return Answer(head.status, dict(head.headers), exchange.body())
