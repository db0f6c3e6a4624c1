"""A desktop shell, as far as the service can tell: one person's tokens, and calls over real HTTP."""

import socket
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from json import dumps, loads
from pathlib import Path
from typing import Any

import requests
from requests.adapters import HTTPAdapter

from tests.standins.provider_process import KEPT

# Nothing here takes so long; a service that is merely slow must not fail a test.
PATIENCE = 60.0
HOST = "127.0.0.1"
DONE = "[DONE]"


class _From(HTTPAdapter):
    """Connects from one of this machine's loopback addresses."""

    def __init__(self, address: str) -> None:
        self._address = address
        super().__init__(pool_maxsize=64)

    def init_poolmanager(self, *args: Any, **options: Any) -> None:
        super().init_poolmanager(*args, **options, source_address=(self._address, 0))


class Shell:
    """Calls ``base_url`` from one address. Each call has its own connection, so that all workers get their share."""

    def __init__(
        self, base_url: str, *, address: str = "127.0.0.1", patience: float = PATIENCE
    ) -> None:
        self.base_url = base_url
        self.patience = patience
        self.access = ""
        self.refresh_token = ""
        self._session = requests.Session()
        self._session.trust_env = False
        self._session.headers["Connection"] = "close"
        self._session.mount("http://", _From(address))

    def keep_connections(self) -> None:
        """From now on calls share connections, as those of a browser do."""
        self._session.headers["Connection"] = "keep-alive"

    def call(self, method: str, path: str, **options: Any) -> requests.Response:
        """With the access token, where there is one."""
        headers = {"Authorization": f"Bearer {self.access}"} if self.access else {}
        return self._session.request(
            method,
            f"{self.base_url}{path}",
            timeout=self.patience,
            **{**options, "headers": {**headers, **options.get("headers", {})}},
        )

    def get(self, path: str, **options: Any) -> requests.Response:
        return self.call("GET", path, **options)

    def post(self, path: str, json: Any = None, **options: Any) -> requests.Response:
        return self.call("POST", path, json=json, **options)

    def login(self, email: str, password: str) -> requests.Response:
        """Signs in; the tokens of a success are kept."""
        return self._with_tokens("/v1/auth/login", {"email": email, "password": password})

    def refresh(self, token: str | None = None, *, key: str | None = None) -> requests.Response:
        """Exchanges a refresh token, its own by default; the tokens of a success are kept.

        With a ``key`` it may be repeated.
        """
        body = {"refresh": token or self.refresh_token}
        return self._with_tokens("/v1/auth/refresh", body, {"Idempotency-Key": key})

    def complete(self, text: str, **members: Any) -> requests.Response:
        return self.post("/v1/llm/complete", asked(text, **members))

    @contextmanager
    def stream(self, text: str, **members: Any) -> Iterator["Stream"]:
        """An answer as it comes; leaving the block leaves the stream."""
        response = self.post("/v1/llm/stream", asked(text, **members), stream=True)
        with response:
            yield Stream(response)

    def usage(self) -> dict[str, Any]:
        response = self.get("/v1/usage/me")
        assert response.status_code == 200, response.text
        usage: dict[str, Any] = response.json()
        return usage

    def _with_tokens(
        self, path: str, body: dict[str, str], headers: Mapping[str, str | None] | None = None
    ) -> requests.Response:
        response = self._session.post(
            f"{self.base_url}{path}", json=body, headers=headers, timeout=self.patience
        )
        if response.status_code == 200:
            pair = response.json()
            self.access, self.refresh_token = pair["access"], pair["refresh"]
        return response


class Stream:
    """A streamed answer. Iterating gives the data of each event and ``:`` for each comment, as they come.

    For streams whose lines end in LF, as those of the service itself do; ``rest()`` reads any of them whole.
    """

    def __init__(self, response: requests.Response) -> None:
        self.status = response.status_code
        self.headers = response.headers
        self._response = response
        self._chunks = response.iter_content(None)
        self._found = self._split()

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        return next(self._found)

    def next_event(self) -> str:
        """The data of the next event, past any comments."""
        return next(each for each in self if each != ":")

    def rest(self) -> bytes:
        return b"".join(self._chunks)

    def problem(self) -> dict[str, Any]:
        """The body of an answer that never became a stream."""
        problem: dict[str, Any] = self._response.json()
        return problem

    def _split(self) -> Iterator[str]:
        waiting, block = b"", b""
        for chunk in self._chunks:
            *lines, waiting = (waiting + chunk).split(b"\n")
            for line in lines:
                if line.startswith(b":"):
                    yield ":"
                elif line:
                    block += line + b"\n"
                else:
                    yield from events(block)
                    block = b""
        assert waiting + block == b"", (waiting, block)


def asked(text: str, **members: Any) -> dict[str, Any]:
    """The body of a model call with one message."""
    return {"messages": [{"role": "user", "content": text}], **members}


class Caller:
    """A model call over a bare socket, so that it can leave in any way."""

    def __init__(self, shell: Shell, port: int, path: str, text: str, **members: Any) -> None:
        body = dumps(asked(text, **members)).encode()
        self._socket = socket.create_connection((HOST, port), timeout=PATIENCE)
        self._socket.sendall(
            f"POST {path} HTTP/1.1\r\nHost: {HOST}\r\nAuthorization: Bearer {shell.access}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode()
            + body
        )

    def read(self, *, events: int = 1, word: bytes = b"chat.completion.chunk") -> None:
        """Returns once so many have come, with this word in each."""
        got = b""
        while got.count(word) < events:
            more = self._socket.recv(65536)
            assert more, got
            got += more

    def close(self) -> None:
        self._socket.close()

    def reset(self) -> None:
        """As a machine does that was switched off and on again."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._socket.close()


def stand_in(directive: str) -> str:
    """A message that asks the stand-in provider for a behaviour (`tests/standins/provider/behaviour.py`)."""
    return f"[[stand-in: {directive} ]]"


def sending(*writes: bytes, directive: str = "") -> str:
    """A short message to which the stand-in provider answers exactly these bytes, one write each."""
    given = dumps([each.decode("latin-1") for each in writes])
    name = sha256(given.encode()).hexdigest()[:16]
    (Path(KEPT.name) / name).write_text(given)
    return stand_in(f"kept={name} {directive}")


def chunk(finish: str | None = None, **delta: Any) -> dict[str, Any]:
    """One event of a provider's stream."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {"object": "chat.completion.chunk", "choices": [choice]}


def as_event(data: dict[str, Any] | str) -> bytes:
    """An event as providers write it."""
    text = data if isinstance(data, str) else dumps(data, ensure_ascii=False, separators=(",", ":"))
    return f"data: {text}\n\n".encode()


def events(body: bytes) -> list[str]:
    """The data of every event in a body, read by the standard, whatever its line ends."""
    lines = body.decode().replace("\r\n", "\n").replace("\r", "\n").split("\n")
    found: list[str] = []
    data: list[str] = []
    for line in [*lines, ""]:
        if line.startswith("data:"):
            data.append(line.removeprefix("data:").removeprefix(" "))
        elif not line and data:
            found.append("\n".join(data))
            data = []
    return found


def text_of(streamed: list[str]) -> str:
    """The text that the chunks among these events make."""
    chunks = [loads(data) for data in streamed if data != DONE]
    choices = [choice for chunk in chunks for choice in chunk.get("choices", ())]
    return "".join(choice["delta"].get("content") or "" for choice in choices)
