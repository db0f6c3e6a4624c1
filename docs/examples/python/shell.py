"""A session of a shell: BASE_URL, EMAIL, PASSWORD and VERSION are read from the environment.

Needs `requests`. Typed clients can be generated from `/v1/schema`, with openapi-python-client for instance.
"""

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import requests

MARGIN_SECONDS = 60
PAUSES = (0.2, 1, 5)
PATIENCE = (5, 60)
Kept = dict[str, str] | None


class Refused(Exception):
    """A problem that the service answered; ``code`` is its name."""

    def __init__(self, problem: dict[str, Any]) -> None:
        self.code, self.problem = problem["code"], problem
        super().__init__(problem["detail"])


class Shell:
    """``keep`` stores what outlives the process: use the system's keychain, and return when it is written."""

    def __init__(self, base_url: str, kept: Kept, keep: Callable[[Kept], None]) -> None:
        self.base_url = base_url
        self._kept = kept
        self._keep = keep
        self._http = requests.Session()
        self._access, self._ends = "", 0.0
        self._refreshing = threading.Lock()
        self._known: tuple[str, dict[str, Any]] | None = None

    def sign_in(self, email: str, password: str, end_session: str | None = None) -> None:
        """After ``device_limit_reached``, ``end_session`` is the ``id`` of the device to sign out for this one."""
        body = {"email": email, "password": password, "end_session": end_session}
        self._take(_read(self._http.post(self._at("/v1/auth/login"), json=body, timeout=PATIENCE)))

    def token(self) -> str:
        """The access token, renewed a minute before its end; also a key for SDKs that take a function."""
        # One refresh at a time: a refresh token is good for one use.
        with self._refreshing:
            if time.time() > self._ends - MARGIN_SECONDS:
                self._refresh()
            return self._access

    def renew(self) -> None:
        """Renews the token before its time, as after the machine has slept."""
        with self._refreshing:
            self._refresh()

    def licence(self) -> dict[str, Any]:
        """The licence; costs the service nearly nothing while it stays the same."""
        headers = {"If-None-Match": self._known[0]} if self._known else {}
        response = self._call("GET", "/v1/license/status", headers=headers)
        if response.status_code == 304 and self._known:
            return self._known[1]
        self._known = response.headers["ETag"], _read(response)
        return self._known[1]

    def ask(self, **members: Any) -> Iterator[dict[str, Any]]:
        """Streams the chunks of an answer; stop early by closing the iterator."""
        with self._call("POST", "/v1/llm/stream", json=members, stream=True) as response:
            if response.status_code != 200:
                _read(response)
            for line in response.iter_lines():
                # Other lines are comments, which keep a silent stream alive, and ends of events.
                if not line.startswith(b"data: "):
                    continue
                if line == b"data: [DONE]":
                    return
                event = json.loads(line[6:])
                if "error" in event:
                    raise Refused({**event["error"], "detail": event["error"]["message"]})
                yield event
        raise Refused({"code": "provider_error", "detail": "The answer ended too early."})

    def usage(self) -> dict[str, Any]:
        return _read(self._call("GET", "/v1/usage/me"))

    def report(self, name: str, **properties: Any) -> dict[str, Any]:
        """Send the same events again after a failure: those that are stored already count as duplicates."""
        now = datetime.now(UTC).isoformat()
        event = {"id": str(uuid4()), "name": name, "occurred_at": now, "properties": properties}
        return _read(self._call("POST", "/v1/telemetry", json={"events": [event]}))

    def log_out(self) -> None:
        if self._kept:
            body = {"refresh": self._kept["refresh"]}
            self._http.post(self._at("/v1/auth/logout"), json=body, timeout=PATIENCE)
        self._forget()

    def _refresh(self) -> None:
        """With the same key, the service answers a repeated refresh with the same successor, for a day."""
        if not self._kept:
            raise Refused({"code": "not_authenticated", "detail": "Please sign in."})
        self._kept.setdefault("pending", uuid4().hex)
        # Before the call: a process that dies here goes on with this key when it starts again.
        self._keep(self._kept)
        headers = {"Idempotency-Key": self._kept["pending"]}
        body = {"refresh": self._kept["refresh"]}
        for pause in (*PAUSES, None):
            with suppress(requests.ConnectionError, requests.Timeout):
                response = self._http.post(
                    self._at("/v1/auth/refresh"), json=body, headers=headers, timeout=PATIENCE
                )
                if response.status_code < 500 and response.status_code != 429:
                    break
            if pause is None:
                raise Refused({"code": "service_unavailable", "detail": "Please try again later."})
            time.sleep(pause)
        if response.status_code == 401:
            self._forget()
        self._take(_read(response))

    def _call(self, method: str, path: str, **options: Any) -> requests.Response:
        headers = {"Authorization": f"Bearer {self.token()}", **options.pop("headers", {})}
        return self._http.request(
            method, self._at(path), headers=headers, timeout=PATIENCE, **options
        )

    def _at(self, path: str) -> str:
        return f"{self.base_url}{path}"

    def _take(self, pair: dict[str, Any]) -> None:
        self._kept = {"refresh": pair["refresh"]}
        self._keep(self._kept)
        self._access, self._ends = pair["access"], time.time() + pair["expires_in"]

    def _forget(self) -> None:
        self._kept = self._known = None
        self._access, self._ends = "", 0.0
        self._keep(None)


def _read(response: requests.Response) -> dict[str, Any]:
    body: dict[str, Any] = response.json()
    if response.status_code >= 400:
        raise Refused(body)
    return body


def is_below(version: str, minimum: str) -> bool:
    """Compares SemVer versions, pre-releases before their release."""
    return bool(minimum) and _order(version) < _order(minimum)


def _order(version: str) -> tuple[Any, ...]:
    core, _, pre = version.partition("+")[0].partition("-")
    parts = [
        (not each.isdecimal(), int(each) if each.isdecimal() else each) for each in pre.split(".")
    ]
    return [int(each) for each in core.split(".")], not pre, parts if pre else []


def sign_in(shell: Shell, email: str, password: str) -> None:
    """Signs in. With no device free a shell lists them, and its person chooses one: here by its name in SIGN_OUT."""
    try:
        shell.sign_in(email, password)
    except Refused as refused:
        if refused.code != "device_limit_reached":
            raise
        devices = refused.problem["devices"]
        for each in devices:
            print(f"device: {each['device'] or 'unnamed'}, last used {each['last_used_at']}")
        chosen = [each["id"] for each in devices if each["device"] == os.environ.get("SIGN_OUT")]
        if not chosen:
            raise
        shell.sign_in(email, password, end_session=chosen[0])


def main() -> None:
    keychain: list[Kept] = [None]
    base_url = os.environ.get("BASE_URL", "http://127.0.0.1:8000")
    shell = Shell(base_url, keychain[-1], lambda kept: keychain.append(kept and {**kept}))

    sign_in(shell, os.environ["EMAIL"], os.environ["PASSWORD"])
    first = shell.licence()
    print(f"licence: {first['status']}, apps: {' '.join(first['entitlements'])}")

    if message := first.get("message"):
        print(f"{message['level']}: {message['text']}")
    version, minimum = os.environ.get("VERSION", "1.0.0"), first.get("minimum_version", "")
    if is_below(version, minimum):
        # The update screen alone.
        print(f"update: {version} must become {minimum} or newer")
        return

    before = keychain[-1]
    shell.renew()
    print(f"renewed: {keychain[-1] != before}, unchanged: {shell.licence() is first}")

    answer = ""
    messages = [{"role": "user", "content": "Say hello."}]
    for chunk in shell.ask(messages=messages, max_tokens=50):
        answer += "".join(choice["delta"].get("content") or "" for choice in chunk["choices"])
    print(f"answer: {answer}")

    usage = shell.usage()
    cap = usage["output"]["cap"]
    print(
        f"usage: {usage['input']['used']} in, {usage['output']['used']} of {cap or 'any number'} out"
    )

    taken = shell.report("session_shown", model={"words": len(answer.split())})
    print(f"telemetry: {taken['accepted']} accepted")

    shell.log_out()
    print(f"signed out: {keychain[-1] is None}")


if __name__ == "__main__":
    try:
        main()
    except Refused as refused:
        sys.exit(f"{refused.code}: {refused}")
