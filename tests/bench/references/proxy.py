"""The least a Django proxy to a model provider does: checks the token's signature and passes on what comes.

No rows are read, nothing is counted, nobody is refused, nothing is settled.
"""

import json
import os
from collections.abc import Iterator

import django
import jwt
import requests
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from django.core.handlers.wsgi import WSGIHandler
from django.http import HttpRequest, HttpResponse, HttpResponseBase, StreamingHttpResponse
from django.urls import path
from requests.adapters import HTTPAdapter

_key = load_pem_public_key(os.environ["BENCH_PUBLIC_KEY"].encode())
_address = f"{os.environ['LLM_BASE_URL']}/chat/completions"
_headers = {
    "Authorization": f"Bearer {os.environ['LLM_API_KEY']}",
    "Content-Type": "application/json",
}
_session = requests.Session()
# Reading proxy variables and .netrc would cost it another 0.4 ms a call.
_session.trust_env = False
_session.mount("http://", HTTPAdapter(pool_connections=1, pool_maxsize=4096))


def complete(request: HttpRequest) -> HttpResponseBase:
    return passed_on(request) if whose(request) else HttpResponse(status=401)


def stream(request: HttpRequest) -> HttpResponseBase:
    return passed_on_as_it_comes(request) if whose(request) else HttpResponse(status=401)


def passed_on(request: HttpRequest) -> HttpResponse:
    answer = _session.post(_address, data=_asked(request), headers=_headers, timeout=60)
    return HttpResponse(answer.content, status=answer.status_code, content_type="application/json")


def passed_on_as_it_comes(request: HttpRequest) -> StreamingHttpResponse:
    asked = _asked(request, stream=True)
    answer = _session.post(_address, data=asked, headers=_headers, timeout=60, stream=True)
    return StreamingHttpResponse(
        _pieces(answer), status=answer.status_code, content_type="text/event-stream"
    )


def _pieces(answer: requests.Response) -> Iterator[bytes]:
    try:
        # As they come, not by some number of bytes.
        yield from answer.raw.stream(None, decode_content=True)
    finally:
        answer.close()


def _asked(request: HttpRequest, **more: bool) -> bytes:
    body = json.loads(request.body)
    return json.dumps({"model": "stand-in-small", **body, **more}).encode()


def whose(request: HttpRequest) -> str | None:
    """Returns the holder of a request's token, if it is one of ours."""
    scheme, _, token = request.META.get("HTTP_AUTHORIZATION", "").partition(" ")
    try:
        claims = jwt.decode(token, _key, algorithms=["RS256"], options={"verify_aud": False})  # type: ignore[arg-type]
    except jwt.InvalidTokenError:
        return None
    return str(claims["sub"]) if scheme == "Bearer" else None


urlpatterns = [path("v1/llm/complete", complete), path("v1/llm/stream", stream)]
django.setup(set_prefix=False)
application = WSGIHandler()
