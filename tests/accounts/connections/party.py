"""A third party on loopback that answers as a test sets: for the faults that no server of others shows on demand."""

import json
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import parse_qsl

Form = dict[str, str]


@dataclass
class Said:
    """One answer. ``drip``: seconds between the bytes of its body; ``before``: called before it is given."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    drip: float = 0
    before: Callable[[Form], None] | None = None


def says(status: int = 200, /, headers: Mapping[str, str] | None = None, **members: Any) -> Said:
    """An answer in JSON."""
    return Said(status, json.dumps(members).encode(), headers or {})


def tokens(number: int = 1, **members: Any) -> Said:
    """A good answer."""
    given = {
        "access_token": f"access-{number}",
        "refresh_token": f"refresh-{number}",
        "token_type": "Bearer",
        "expires_in": 3600,
    }
    return says(200, **{**given, **members})


class Party:
    """``answers`` are given in turn, the last one for ever; ``forms`` and ``heads`` are what came."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.answers: list[Said] = []
        self.forms: list[Form] = []
        self.heads: list[dict[str, str]] = []

    def provider(self, **members: Any) -> dict[str, Any]:
        """Returns its entry of OAUTH_PROVIDERS."""
        return {
            "client_id": "shell",
            "client_secret": "s3cret+/%",
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "revocation_endpoint": f"{self.url}/revoke",
            "scopes": ["sheets"],
            **members,
        }


@contextmanager
def running_party(tls: ssl.SSLContext | None = None) -> Iterator[Party]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            form = dict(parse_qsl(body.decode(), keep_blank_values=True))
            party.forms.append({**form, "path": self.path})
            party.heads.append(dict(self.headers.items()))
            said = party.answers.pop(0) if len(party.answers) > 1 else party.answers[0]
            if said.before:
                said.before(form)
            self.send_response(said.status)
            for name, value in {"Content-Length": str(len(said.body)), **said.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            if not said.drip:
                self.wfile.write(said.body)
                return
            try:
                for byte in said.body:
                    self.wfile.write(bytes([byte]))
                    time.sleep(said.drip)
            except OSError:
                pass

        def log_message(self, *_: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        request_queue_size = 64

        def handle_error(self, request: Any, client_address: Any) -> None:
            """A client that hangs up is what some tests are about."""

    server = Server(("127.0.0.1", 0), Handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    party = Party(f"http{'s' if tls else ''}://127.0.0.1:{server.server_port}")
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield party
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
