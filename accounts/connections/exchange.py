"""Posts one form to a provider for Authlib's client, with limits on time and size; no error contains a secret."""

import json
import re
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs, urlencode

from authlib.oauth2 import ClientAuth

from config.platform.http.exchange import exchange_once

# For the whole exchange: its caller has an answer within 15. The lease of a refresh lasts longer.
MOST_SECONDS = 12.0
MOST_BYTES = 64 * 1024
HEADERS = {
    "Accept": "application/json",
    "Content-Type": "application/x-www-form-urlencoded",
    "User-Agent": "shell-connections",
}
# Other names stand in pages and sentences with a "=" in them.
FORM_NAME = re.compile(r"[A-Za-z_][\w.\[\]-]*", re.ASCII)
MOST_MEMBERS = 100


class Answer:
    """A response with the attributes that Authlib reads. ``headers`` have names in any case."""

    def __init__(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self.status_code = status
        self.headers = headers
        self._body = body

    @property
    def is_empty(self) -> bool:
        return not self._body.strip()

    def members(self) -> dict[str, Any]:
        """The members of the body, a JSON object or a form; empty for any other.

        No text is both, so a wrong type or none hides neither: GitHub sends forms, and others JSON as ``text/html``.
        Without its type a form has to name a token or an error.
        """
        try:
            document = json.loads(self._body)
        except (ValueError, RecursionError):
            return self._form()
        return document if isinstance(document, dict) else {}

    def _form(self) -> dict[str, Any]:
        kind = self.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        is_form = kind == HEADERS["Content-Type"]
        try:
            given = parse_qs(
                self._body.decode("utf-8-sig", "replace").strip(),
                keep_blank_values=True,
                strict_parsing=not is_form,
                max_num_fields=MOST_MEMBERS,
            )
        except ValueError:
            return {}
        if not (is_form or given.keys() & {"access_token", "error"}):
            return {}
        members = {name: _value(values) for name, values in given.items()}
        # Several scopes are a list of them; any other member that is given twice could be read in two ways.
        is_clear = all(name == "scope" or isinstance(each, str) for name, each in members.items())
        return members if is_clear and all(map(FORM_NAME.fullmatch, members)) else {}


def _value(values: list[str]) -> str | list[str]:
    return values[0] if len(set(values)) == 1 else values


class Session:
    """The session that Authlib's client posts through."""

    def post(
        self,
        url: str,
        data: Mapping[str, str],
        headers: Mapping[str, str] | None = None,
        auth: ClientAuth | None = None,
    ) -> Answer:
        """Posts a form with the client's authentication. Raises ``config.platform.http.exchange.ExchangeError``."""
        prepared: Any = (url, {**HEADERS}, urlencode(data))
        if auth is not None:
            prepared = auth.prepare("POST", *prepared)
        return post(*prepared)


def post(url: str, headers: Mapping[str, str], body: str) -> Answer:
    """Posts a form's body. Raises ``config.platform.http.exchange.ExchangeError``."""
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
        return Answer(head.status, head.headers, exchange.body())
