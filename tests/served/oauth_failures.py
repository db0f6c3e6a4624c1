"""An authorisation server at its worst: it repeats what it was told in every kind of answer."""

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

from tests.served.canaries import Secrets


class FailingProvider:
    """``kind`` is how it answers next."""

    FAULTS = ("refused", "wrong client", "broken", "no JSON", "no token", "redirect", "cut off")
    redirect_uri = "http://127.0.0.1:43110/oauth/local/callback"

    def __init__(self, address: str, secret: Secrets) -> None:
        self._address, self._secret = address, secret
        self.kind = "well"

    @classmethod
    @contextmanager
    def running(cls, secret: Secrets) -> Iterator["FailingProvider"]:
        server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        provider = cls(f"http://127.0.0.1:{server.server_port}", secret)
        server.provider = provider  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield provider
        finally:
            server.shutdown()
            thread.join(10)
            server.server_close()

    def settings(self) -> dict[str, Any]:
        """Returns the entry of ``OAUTH_PROVIDERS`` for it."""
        return {
            "client_id": "canaries",
            "client_secret": self._secret.word("client-secret"),
            "authorization_endpoint": f"{self._address}/authorize",
            "token_endpoint": f"{self._address}/token",
            "revocation_endpoint": f"{self._address}/revoke",
        }

    def answer(self, heard: str) -> tuple[int, str]:
        """Status and body; what it heard stands in all but the good one."""
        says = json.dumps({"error": "invalid_grant", "error_description": heard, "access": heard})
        return {
            "refused": (400, says),
            "wrong client": (401, says.replace("invalid_grant", "invalid_client")),
            "broken": (500, heard),
            "no JSON": (200, heard),
            "no token": (200, json.dumps({"token_type": heard, "scope": heard})),
            "redirect": (302, heard),
        }.get(self.kind) or (200, json.dumps(self._tokens()))

    def _tokens(self) -> dict[str, Any]:
        access, refresh = (self._secret.word(f"oauth-{each}") for each in ("access", "refresh"))
        return {
            "access_token": access,
            "refresh_token": refresh,
            "token_type": "Bearer",
            # Over at once, so that the next who asks has it refreshed.
            "expires_in": 1,
        }


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        provider: FailingProvider = self.server.provider  # type: ignore[attr-defined]
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        basic = self.headers.get("Authorization", "").partition(" ")[2]
        heard = f"{unquote(body)} {base64.b64decode(basic).decode('utf-8', 'replace')}"
        if provider.kind == "cut off":
            self.close_connection = True
            return
        status, said = (500, heard) if self.path == "/revoke" else provider.answer(heard)
        self.send_response(status)
        if status == 302:
            self.send_header("Location", f"/elsewhere?{provider.redirect_uri}")
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(said.encode())))
        self.end_headers()
        self.wfile.write(said.encode())

    def log_message(self, *_: object) -> None:
        """Says nothing of requests."""
