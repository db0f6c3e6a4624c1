"""Words that nobody may see again, and every address of the service, asked in every way that fails."""

import json
import secrets
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import requests
from django.contrib.admindocs.views import extract_views_from_urlpatterns, simplify_regex
from django.urls import get_resolver

from tests.served.shell import PATIENCE, stand_in

# Requests that end every session of their caller come last in a walk.
ENDING = ("DELETE /v1/auth/sessions", "POST /v1/auth/password/change")
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
# Longer than any address takes, said and not sent.
TOO_LONG = str(9 * 1024 * 1024)


class Secrets:
    """Everything that is secret in a run. A made-up word holds ``mark``, so that each is found by looking for that.

    A word looks like any other word, and like no token: nothing keeps it out by its form.
    """

    def __init__(self) -> None:
        self.mark = f"canary{secrets.token_hex(6)}"
        # May be kept where telemetry is kept, and nowhere else.
        self.told = f"told{secrets.token_hex(6)}"
        # The caller's label of a call, which is kept on its record and nowhere else.
        self.label = f"label{secrets.token_hex(6)}"
        self.real: set[str] = set()

    def word(self, name: str) -> str:
        return f"{name}-{self.mark}"

    def also(self, *values: str) -> None:
        """Secrets of another's making: tokens, links."""
        self.real.update(value for value in values if value)

    def found_in(self, text: str) -> set[str]:
        """Returns the canaries in a text, as they are, in base64 or in hexadecimal digits."""
        return {each for each in (self.mark, *self.real) if _stands_in(each, text)}


def _stands_in(secret: str, text: str) -> bool:
    raw = secret.encode()
    # Base64 of a word within a text depends on where it begins.
    shifted = (b64encode(b" " * by + raw).decode()[4 if by else 0 : -4] for by in range(3))
    return any(form in text for form in (secret, raw.hex(), *shifted))


@dataclass
class Call:
    """One request of a walk. ``operation`` is its method and the template of its path."""

    operation: str
    path: str
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    raw: bytes | None = None
    length: str = ""

    @property
    def method(self) -> str:
        return self.operation.partition(" ")[0]


@dataclass(frozen=True)
class Answer:
    operation: str
    status: int
    request_id: str


class Walk:
    """Asks one service, with an id of its own for each request, and remembers every answer."""

    def __init__(self, url: str, secret: Secrets) -> None:
        self.url, self.secret = url, secret
        self.answers: list[Answer] = []
        self._session = requests.Session()
        self._session.trust_env = False
        # Headers that proxies and browsers add may be as secret as the caller's own.
        word = secret.word
        self._session.headers.update(
            {
                "User-Agent": word("agent"),
                "Referer": f"https://shell.test/{word('referer')}",
                "Cookie": f"__Host-sessionid={word('cookie')}; __Host-csrftoken={word('csrf')}",
                "X-Forwarded-For": word("forwarded"),
                "Idempotency-Key": word("idempotency-key"),
            }
        )

    def ask(self, call: Call) -> requests.Response:
        request_id = f"walk-{len(self.answers)}-{secrets.token_hex(6)}"
        given = {"data": call.raw} if call.raw is not None else {"json": call.body}
        request = self._session.prepare_request(
            requests.Request(call.method, f"{self.url}{call.path}", **given)
        )
        request.headers.update({"X-Request-ID": request_id, **call.headers})
        if call.raw is not None:
            request.headers.setdefault("Content-Type", "application/json")
        if call.length:
            request.headers.update({"Content-Length": call.length, "Connection": "close"})
        response = self._session.send(request, timeout=PATIENCE, allow_redirects=False)
        self.answers.append(Answer(call.operation, response.status_code, request_id))
        return response

    def each(self, calls: Iterator[Call]) -> list[Answer]:
        """The answers to these calls."""
        before = len(self.answers)
        for call in calls:
            self.ask(call)
        return self.answers[before:]


class Routes:
    """Every operation of the published schema, and every other address that Django knows."""

    def __init__(self, schema: dict[str, Any], secret: Secrets) -> None:
        self._schema, self._secret = schema, secret
        described = {
            f"{method.upper()} {path}": operation
            for path, operations in schema["paths"].items()
            for method, operation in operations.items()
        }
        order = sorted(described, key=lambda each: (each in ENDING, each))
        self.described = {operation: described[operation] for operation in order}
        paths = {operation.partition(" ")[2] for operation in self.described}
        found = extract_views_from_urlpatterns(get_resolver().url_patterns)
        patterns = {simplify_regex(pattern) for _, pattern, *_ in found}
        braces = {each.replace("<", "{").replace(">", "}") for each in patterns}
        # Pages that the schema does not list, so that a call it omits is noticed.
        self.pages = sorted(braces - paths)

    def path(self, operation: str, *, known: bool = True) -> str:
        """An address: of something that may exist, or with a secret in it."""
        path = operation.partition(" ")[2]
        values = {"id": str(uuid4()), "provider": "local", "secret": self._secret43()}
        if not known:
            values |= {"provider": self._secret.word("provider"), "id": self._secret.word("id")}
        for name in [part.partition("}")[0] for part in path.split("{")[1:]]:
            path = path.replace(f"{{{name}}}", values.get(name) or self._secret.word(name))
        return path

    def nothing(self) -> Iterator[Call]:
        """All of them, pages included, with a secret in path, query and body."""
        query = f"?token={self._secret.word('query')}"
        for operation in self.described:
            yield Call(operation, self.path(operation, known=False) + query)
        kind = {"Content-Type": "application/x-www-form-urlencoded"}
        form = f"password={self._secret.word('form')}".encode()
        for page in self.pages:
            path = f"{self.path(f'GET {page}')}{query}"
            yield Call(f"GET {page}", path)
            # All pages of the console send strangers to its sign-in alike.
            if not page.startswith("/admin/") or page == "/admin/login/":
                yield Call(f"POST {page}", path, raw=form, headers=kind)

    def unreadable(self, access: str) -> Iterator[Call]:
        """Yields requests that are refused before any rule: bodies, lengths, kinds, methods, addresses, tokens."""
        word, good = self._secret.word("unreadable"), {"Authorization": f"Bearer {access}"}
        kinds = {"Content-Type": "text/plain", "Content-Encoding": word}
        for operation, described in self.described.items():
            path = self.path(operation)
            if "requestBody" in described:
                yield Call(operation, path, raw=f'{{"a": "{word}'.encode(), headers=good)
                yield Call(operation, path, raw=f'["{word}"]'.encode(), headers=good)
                yield Call(operation, path, raw=word.encode() + b"\xff", headers=good)
                yield Call(operation, path, raw=f'{{"{word}":1,"{word}":2}}'.encode(), headers=good)
                yield Call(operation, path, raw=b"{}", headers={**good, **kinds})
                yield Call(operation, path, raw=word.encode(), headers=good, length=TOO_LONG)
            for token in (word, f"{word} {word}", f"Basic {word}", f"Bearer {word}.{word}.{word}"):
                yield Call(operation, path, body={"a": word}, headers={"Authorization": token})
            yield Call(operation, f"{path}/{word}", body={"a": word}, headers=good)
            yield Call(operation, f"{path}?%00={word}", body={"a": word}, headers=good)
            yield Call(operation, path, body={"a": word}, headers={**good, "Host": word})
            yield Call(operation, path, headers={**good, "Accept": f"image/{word}"})
        for path in self._schema["paths"]:
            for method in METHODS:
                if f"{method} {path}" not in self.described:
                    operation = f"{method} {path}"
                    yield Call(operation, self.path(operation), body={"a": word}, headers=good)

    def wrong(self, access: str) -> Iterator[Call]:
        """The members of each body with values that they do not take: all together, and each alone."""
        word, good = self._secret.word("wrong"), {"Authorization": f"Bearer {access}"}
        for operation, described in self.described.items():
            members = self._members(described)
            for value in (word, {word: word}, [word], f"{word}\0", 10**400, None):
                body = dict.fromkeys(members, value) | {word: word}
                yield Call(operation, self.path(operation), body=body, headers=good)
            for member in members:
                for value in (word, {word: word}):
                    yield Call(operation, self.path(operation), body={member: value}, headers=good)

    def _members(self, described: dict[str, Any]) -> list[str]:
        """Returns the members that a body may have; nothing where there is none."""
        for content in described.get("requestBody", {}).get("content", {}).values():
            schema = content["schema"]
            if "$ref" in schema:
                schema = self._schema["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
            return list(schema.get("properties", {}))
        return []

    def _secret43(self) -> str:
        """As long as the secret of a mailed link."""
        return self._secret.word("link").ljust(43, "x")[:43]


def prompt(secret: Secrets, directive: str = "tokens=3", **members: Any) -> dict[str, Any]:
    """The body of a model call that is secret in every place: text, image, tool, its call and its answer."""
    word = secret.word
    picture = b64encode(f"\x89PNG {word('image')}".encode("latin-1")).decode()
    call = {"id": "call_1", "type": "function"}
    call |= {"function": {"name": "look", "arguments": json.dumps({"for": word("argument")})}}
    tool = {"name": "look", "description": word("tool"), "parameters": {"type": "object"}}
    said = f"{word('prompt')} {stand_in(directive)}"
    return {
        "messages": [
            {"role": "system", "content": word("system")},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": word("text")},
                    {
                        "type": "image_url",
                        "image_url": {"url": f"data:image/png;base64,{picture}"},
                    },
                ],
            },
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "call_1", "content": word("result")},
            {"role": "user", "content": said},
        ],
        "tools": [{"type": "function", "function": tool}],
        "user": secret.label,
        "metadata": {"note": secret.label},
        **members,
    }
