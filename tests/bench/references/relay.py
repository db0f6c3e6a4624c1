"""The floor of a streaming relay: a WSGI function that reads a provider by ``requests`` and rewrites each event.

It parses each event with ``orjson`` and dumps it again, as whoever looks into events has to. The token is not looked
at, no rows are read, nothing is counted, and a client that leaves is noticed at the next write.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import orjson
import requests
from requests.adapters import HTTPAdapter

ADDRESSES = {
    "/v1/llm/stream": "chat/completions",
    "/v1/llm/responses": "responses",
    "/v1/llm/messages": "messages",
}
HEADERS = {
    "Authorization": f"Bearer {os.environ['LLM_API_KEY']}",
    "Content-Type": "application/json",
    "Accept-Encoding": "identity",
}
READ_BYTES = 16 * 1024
DATA = b"data: "
DONE = b"[DONE]"

_session = requests.Session()
# Reading proxy variables and .netrc would cost it another 0.4 ms a call.
_session.trust_env = False
for scheme in ("http://", "https://"):
    _session.mount(scheme, HTTPAdapter(pool_connections=1, pool_maxsize=4096))


def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    body = orjson.loads(environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"])))
    answer = _session.post(
        f"{os.environ['LLM_BASE_URL']}/{ADDRESSES[environ['PATH_INFO']]}",
        data=orjson.dumps({**body, "stream": True}),
        headers=HEADERS,
        timeout=60,
        stream=True,
        verify=os.environ.get("LLM_CA_BUNDLE") or True,
    )
    status = f"{answer.status_code} {answer.reason}"
    start_response(status, [("Content-Type", "text/event-stream")])
    return _written_anew(answer)


def _written_anew(answer: requests.Response) -> Iterator[bytes]:
    left = b""
    try:
        while piece := answer.raw.read1(READ_BYTES):
            *events, left = (left + piece).split(b"\n\n")
            if events:
                yield b"".join(map(_event, events))
    finally:
        answer.close()


def _event(event: bytes) -> bytes:
    head, mark, data = event.rpartition(DATA)
    if data != DONE:
        data = orjson.dumps(orjson.loads(data))
    return b"%b%b%b\n\n" % (head, mark, data)
