"""Compression of the schema and static files alone."""

import gzip
from collections.abc import Iterator
from typing import Any

import pytest
from django.test import Client, override_settings

from config.platform.api.docs import _document

BUNDLE = "/static/drf_spectacular_sidecar/swagger-ui-dist/swagger-ui-bundle.js"
SCHEMA = "/v1/schema"


@pytest.fixture(autouse=True)
def _small_schema() -> Iterator[None]:
    """The whole one takes seconds to make."""
    _document.cache_clear()
    with override_settings(ROOT_URLCONF="tests.platform.api.test_docs", SECURE_SSL_REDIRECT=False):
        yield
    _document.cache_clear()


def body(response: Any) -> bytes:
    """Reads a body to its end, and closes it."""
    return b"".join(response)


@pytest.mark.parametrize("path", [BUNDLE, SCHEMA])
@pytest.mark.parametrize("accepted", ["gzip", "deflate, gzip;q=0.5, br", "x-gzip"])
def test_a_file_is_compressed_where_the_caller_accepts_that(
    client: Client, path: str, accepted: str
) -> None:
    plain = client.get(path)
    whole = body(plain)
    for _ in range(2):
        packed = client.get(path, headers={"Accept-Encoding": accepted})
        content = body(packed)
        assert (packed.status_code, packed["Content-Encoding"]) == (200, "gzip")
        assert gzip.decompress(content) == whole
        assert len(content) < len(whole)
        assert packed["ETag"] == f"W/{plain['ETag']}"
        for name in ("Content-Type", "Cache-Control", "Vary"):
            assert packed[name] == plain[name]
        assert "accept-encoding" in packed["Vary"].lower()
    assert "Content-Encoding" not in plain


@pytest.mark.parametrize("path", [BUNDLE, SCHEMA])
@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Accept-Encoding": ""},
        {"Accept-Encoding": "identity"},
        {"Accept-Encoding": "notgzip"},
    ],
)
def test_a_file_is_plain_for_everybody_else(
    client: Client, path: str, headers: dict[str, str]
) -> None:
    response = client.get(path, headers=headers)
    assert (response.status_code, len(body(response)) > 0) == (200, True)
    assert "Content-Encoding" not in response
    assert "accept-encoding" in response["Vary"].lower()


@pytest.mark.parametrize("path", [BUNDLE, SCHEMA])
def test_a_caller_who_has_it_compressed_need_not_get_it_again(client: Client, path: str) -> None:
    packed = client.get(path, headers={"Accept-Encoding": "gzip"})
    body(packed)
    for tag in (packed["ETag"], packed["ETag"].removeprefix("W/")):
        again = client.get(path, headers={"Accept-Encoding": "gzip", "If-None-Match": tag})
        assert (again.status_code, body(again)) == (304, b"")
    other = client.get(path, headers={"Accept-Encoding": "gzip", "If-None-Match": 'W/"other"'})
    assert other.status_code == 200
    body(other)


def test_a_part_of_a_file_is_of_the_plain_one(client: Client) -> None:
    whole = body(client.get(BUNDLE))
    part = client.get(BUNDLE, headers={"Accept-Encoding": "gzip", "Range": "bytes=0-99"})
    assert (part.status_code, body(part)) == (206, whole[:100])
    assert "Content-Encoding" not in part


@pytest.mark.parametrize(
    ("path", "status"),
    [("/docs/", 200), ("/v1/small", 200), ("/livez", 204), ("/static/none", 404)],
)
def test_nothing_else_is_compressed(client: Client, path: str, status: int) -> None:
    response = client.get(path, headers={"Accept-Encoding": "gzip"})
    assert (response.status_code, response.get("Content-Encoding")) == (status, None)
    body(response)
    assert client.head(BUNDLE, headers={"Accept-Encoding": "gzip"}).status_code == 200
