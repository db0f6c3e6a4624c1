"""The server as tests see it: started, stopped and asked, and a browser in which somebody agrees."""

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import requests

from tests.tools.children import Child, Program
from tests.tools.folders import ROOT
from tests.tools.ports import free

HOST = "127.0.0.1"
PERSON, PASSWORD = "grace", "a password of theirs"
# Characters that a client must encode before it puts them into a header.
CLIENT_ID, CLIENT_SECRET = "shell-client", "canary+Secret/9%:&=7"
PATIENCE = 60.0
HIDDEN = re.compile(r"<input[^>]*type=\"hidden\"[^>]*>")
ATTRIBUTE = re.compile(r"(name|value)=\"([^\"]*)\"")


class OAuthServer:
    """A django-oauth-toolkit on a port of its own. ``provider`` is what OAUTH_PROVIDERS says of it."""

    def __init__(self, folder: Path, database: str, name: str) -> None:
        self.folder = folder
        self.port = free(HOST, 0)
        self.url = f"http://{HOST}:{self.port}"
        self.name = name
        self._environ = {
            "PATH": "/usr/bin:/bin",
            "DJANGO_SETTINGS_MODULE": "tests.standins.oauth_server.settings",
            "OAUTHSERVER_DATABASE": database,
            "OAUTHSERVER_FOLDER": str(folder),
            "PYTHONPATH": str(ROOT),
        }
        self._child: Child | None = None

    @property
    def provider(self) -> dict[str, Any]:
        return {
            "client_id": CLIENT_ID,
            "client_secret": CLIENT_SECRET,
            "authorization_endpoint": f"{self.url}/o/authorize/",
            "token_endpoint": f"{self.url}/o/token/",
            "revocation_endpoint": f"{self.url}/o/revoke_token/",
            "scopes": ["sheets", "profile"],
        }

    def prepare(self) -> None:
        redirect = f"http://{HOST}/oauth/{self.name}/callback"
        self._python(
            "tests.standins.oauth_server.prepare",
            CLIENT_ID,
            CLIENT_SECRET,
            redirect,
            PERSON,
            PASSWORD,
        )

    def start(self) -> None:
        command = [
            *(sys.executable, "-m", "gunicorn", "--bind", f"{HOST}:{self.port}"),
            *("--worker-class", "gthread", "--threads", "16", "--no-control-socket"),
            "tests.standins.oauth_server.wsgi",
        ]
        program = Program(
            name="oauth server",
            command=command,
            log=self.folder / "oauthserver.log",
            environ=self._environ,
            # At once, with whatever it was answering.
            asked_by=signal.SIGQUIT,
        )
        self._child = program.start()
        self._child.wait_until(self._answers, seconds=60)

    def stop(self) -> None:
        if self._child is not None:
            self._child.stop()
            self._child = None

    def asked(self, kind: str) -> list[int]:
        """The statuses of what clients were answered, of a kind: a grant type, or ``revocation``."""
        file = self.folder / "asked"
        lines = file.read_text().splitlines() if file.exists() else []
        return [status for each, status in map(json.loads, lines) if each == kind]

    @contextmanager
    def holding(self) -> Iterator[None]:
        """Inside, the server does what clients ask, and does not say so."""
        hold, held = self.folder / "hold", self.folder / "held"
        held.unlink(missing_ok=True)
        hold.touch()
        try:
            yield
        finally:
            self.let_go()

    def let_go(self) -> None:
        """Lets it say what it has done."""
        (self.folder / "hold").unlink(missing_ok=True)

    def wait_until_held(self) -> None:
        """Returns once it has done something and keeps silent about it."""
        deadline = time.monotonic() + PATIENCE
        while not (self.folder / "held").exists():
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def is_live(self, access_token: str) -> bool:
        """Returns whether the server itself says that an access token is good."""
        answer = self._post("/o/introspect/", {"token": access_token})
        return bool(answer.json()["active"])

    def try_refresh(self, refresh_token: str) -> int:
        """The status of a refresh by somebody who has the token and the client's secret."""
        form = {"grant_type": "refresh_token", "refresh_token": refresh_token}
        return self._post("/o/token/", form).status_code

    def revoke(self, token: str) -> None:
        """As if the person had removed us on the provider's own page."""
        assert self._post("/o/revoke_token/", {"token": token}).status_code == 200

    def agree(self, authorization_url: str, *, allow: bool = True) -> dict[str, str]:
        """Signs in and agrees in a browser of forms, and returns the redirect's parameters."""
        with requests.Session() as browser:
            browser.trust_env = False
            page = browser.get(authorization_url, timeout=PATIENCE)
            form = {**_hidden(page.text), "username": PERSON, "password": PASSWORD}
            page = browser.post(page.url, data=form, timeout=PATIENCE)
            assert page.status_code == 200, page.text
            form = {**_hidden(page.text), **({"allow": "Authorize"} if allow else {})}
            answer = browser.post(page.url, data=form, allow_redirects=False, timeout=PATIENCE)
        assert answer.status_code == 302, answer.text
        address = urlsplit(answer.headers["Location"])
        return {
            "address": address._replace(query="").geturl(),
            **{name: values[0] for name, values in parse_qs(address.query).items()},
        }

    def _post(self, path: str, form: Mapping[str, str]) -> requests.Response:
        client = {"client_id": CLIENT_ID, "client_secret": CLIENT_SECRET}
        with requests.Session() as session:
            session.trust_env = False
            return session.post(f"{self.url}{path}", data={**client, **form}, timeout=PATIENCE)

    def _answers(self) -> bool:
        try:
            with requests.Session() as session:
                session.trust_env = False
                return session.get(f"{self.url}/login/", timeout=PATIENCE).status_code == 200
        except requests.ConnectionError:
            return False

    def _python(self, *arguments: str) -> None:
        done = subprocess.run(
            [sys.executable, "-m", *arguments],
            cwd=ROOT,
            env=self._environ,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr


@contextmanager
def running_oauth_server(folder: Path, database: str, name: str) -> Iterator[OAuthServer]:
    """Starts one on an empty database, for a provider of this name; stopped at the end."""
    server = OAuthServer(folder, database, name)
    server.prepare()
    server.start()
    try:
        yield server
    finally:
        server.stop()


def _hidden(page: str) -> dict[str, str]:
    found = {}
    for tag in HIDDEN.findall(page):
        attributes = dict(ATTRIBUTE.findall(tag))
        found[unescape(attributes["name"])] = unescape(attributes.get("value", ""))
    return found
