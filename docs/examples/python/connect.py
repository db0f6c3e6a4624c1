"""A connection to a third party, from the person's browser to ``reauthorisation_needed``.

``call`` is the shell's request with its access token: ``call(method, path, json=...)`` (`shell.py` has one).
"""

import time
import webbrowser
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import requests

Call = Callable[..., requests.Response]
# The service forgets the state after ten minutes.
PATIENCE = 600


class AskThePerson(Exception):
    """The person has to agree, or to agree again: offer a button that calls :func:`connect`."""


def connect(call: Call, provider: str, browse: Callable[[str], object] = webbrowser.open) -> None:
    """Asks the person to agree in a browser."""
    with Callback(f"/oauth/{provider}/callback") as server:
        here = f"http://127.0.0.1:{server.server_port}{server.path}"
        begun = read(
            call("POST", f"/v1/connections/{provider}/authorize", json={"redirect_uri": here})
        )
        browse(begun["authorization_url"])
        back = server.wait(begun["state"])
    if "code" not in back:
        raise AskThePerson(back.get("error", "access_denied"))
    given = {name: back[name] for name in ("code", "state", "iss") if name in back}
    read(call("POST", f"/v1/connections/{provider}/complete", json=given))


def token(call: Call, provider: str, refused: str | None = None) -> str:
    """A token for the third party's API. Ask before each use: the service keeps it and renews it in time.

    ``refused`` is a token that the third party has answered 401 to.
    """
    given = {"refused": refused} if refused else {}
    answer = call("POST", f"/v1/connections/{provider}/token", json=given)
    if answer.status_code in {404, 409}:
        # `connection_not_found`, or `reauthorisation_needed`: the grant has ended at the third party.
        raise AskThePerson(answer.json()["detail"])
    return str(read(answer)["access_token"])


def disconnect(call: Call, provider: str) -> None:
    call("DELETE", f"/v1/connections/{provider}")


def read(answer: requests.Response) -> dict[str, Any]:
    """Reads the answer; 429 and 503 mean later, after ``Retry-After``."""
    answer.raise_for_status()
    body: dict[str, Any] = answer.json()
    return body


class Callback(ThreadingHTTPServer):
    """Listens on a free port of 127.0.0.1 for the one redirect; everything else is a 404."""

    def __init__(self, path: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.path, self.timeout = path, 0.5
        self.came: list[dict[str, str]] = []

    def wait(self, state: str) -> dict[str, str]:
        """The redirect with this state. Any page of the browser can ask here, and brings another or none."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            self.handle_request()
            for back in self.came:
                if back.get("state") == state:
                    return back
        raise AskThePerson("The browser did not come back.")


class _Handler(BaseHTTPRequestHandler):
    server: Callback

    def do_GET(self) -> None:
        asked = urlsplit(self.path)
        is_ours = asked.path == self.server.path
        if is_ours:
            self.server.came.append({name: each[0] for name, each in parse_qs(asked.query).items()})
        self.send_response(200 if is_ours else 404)
        self.send_header("Content-Type", "text/plain")
        self.end_headers()
        self.wfile.write(b"You can close this page." if is_ours else b"")

    def log_message(self, *args: object) -> None:
        """The code stays out of logs."""
