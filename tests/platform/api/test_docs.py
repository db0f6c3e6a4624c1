import json
import re
from collections.abc import Iterator

import pytest
import yaml
from django.test import Client, override_settings
from django.urls import path
from drf_spectacular.utils import extend_schema
from rest_framework.permissions import AllowAny
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from config.platform.api.docs import DocsView, SchemaView, _document
from tests.platform.api import test_schema


class Small(APIView):
    authentication_classes = ()
    permission_classes = (AllowAny,)

    @extend_schema(operation_id="small", responses={200: int})
    def get(self, request: Request) -> Response:
        return Response({})


urlpatterns = [
    path("v1/small", Small.as_view()),
    path("v1/schema", SchemaView.as_view(), name="schema"),
    path("docs/", DocsView.as_view(), name="docs"),
]
handler404 = test_schema.handler404
handler500 = test_schema.handler500


@pytest.fixture(autouse=True)
def _own_addresses() -> Iterator[None]:
    _document.cache_clear()
    with override_settings(ROOT_URLCONF=__name__, SECURE_SSL_REDIRECT=False):
        yield
    _document.cache_clear()


@pytest.mark.parametrize(
    "accept", ["*/*", "", "application/json", "text/html", "text/csv", "image/png, */*;q=0.1"]
)
def test_the_schema_is_json_whatever_the_caller_accepts(client: Client, accept: str) -> None:
    response = client.get("/v1/schema", headers={"Accept": accept})
    assert (response.status_code, response["Content-Type"]) == (200, "application/json")
    assert response.json()["paths"].keys() == {"/healthz", "/livez", "/v1/small"}


@pytest.mark.parametrize("accept", ["application/yaml", "application/vnd.oai.openapi"])
def test_the_schema_is_yaml_on_request(client: Client, accept: str) -> None:
    response = client.get("/v1/schema", headers={"Accept": accept})
    assert response["Content-Type"] == accept
    assert yaml.safe_load(response.content) == client.get("/v1/schema").json()


def test_the_schema_is_public_and_cacheable(client: Client) -> None:
    response = client.get("/v1/schema", headers={"Authorization": "Bearer nonsense"})
    assert response.status_code == 200
    assert response["Cache-Control"] == "public, max-age=300"
    varies = {each.strip().lower() for each in response["Vary"].split(",")}
    assert varies == {"accept", "accept-encoding", "origin"}
    assert not response.cookies
    again = client.get("/v1/schema", headers={"If-None-Match": response["ETag"]})
    assert (again.status_code, again.content, again["ETag"]) == (304, b"", response["ETag"])
    assert again["X-Request-ID"]


def test_json_and_yaml_have_different_tags(client: Client) -> None:
    tags = {
        client.get("/v1/schema", headers={"Accept": each})["ETag"]
        for each in ("*/*", "application/yaml")
    }
    assert len(tags) == 2


def test_the_schema_allows_no_other_method(client: Client) -> None:
    response = client.post("/v1/schema")
    assert (response.status_code, response["Content-Type"]) == (405, "application/problem+json")
    assert "GET" in response["Allow"]


@pytest.mark.parametrize("accept", ["text/html", "*/*", "application/json"])
def test_the_page_is_public_and_cacheable(client: Client, accept: str) -> None:
    response = client.get("/docs/", headers={"Accept": accept, "Authorization": "Bearer nonsense"})
    assert (response.status_code, response["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert response["Cache-Control"] == "public, max-age=300"
    assert "Cookie" not in response.get("Vary", "")
    assert not response.cookies
    assert response["X-Request-ID"]


def test_the_page_has_no_inline_script_and_nothing_from_elsewhere(client: Client) -> None:
    page = client.get("/docs/").content.decode()
    assert re.findall(r"<script(?![^>]*\bsrc=)", page) == []
    assert not re.search(r"<style|\bstyle=|\bon\w+=|javascript:", page)
    named = re.findall(r'(?:src|href)="([^"]+)"', page)
    assert len(named) == 4
    assert all(address.startswith("/") and not address.startswith("//") for address in named)


def test_every_file_of_the_page_is_served_here(client: Client) -> None:
    for address in re.findall(r'(?:src|href)="([^"]+)"', client.get("/docs/").content.decode()):
        response = client.get(address)
        assert response.status_code == 200
        assert b"".join(response)


def test_the_script_points_at_the_schema_and_at_no_validator(client: Client) -> None:
    response = client.get("/docs/?script=")
    assert response["Content-Type"].startswith("application/javascript")
    script = response.content.decode()
    assert 'url: "/v1/schema"' in script
    assert "validatorUrl: null" in script
    assert "http" not in script
    assert not response.cookies


def test_a_query_is_not_repeated_as_markup(client: Client) -> None:
    page = client.get('/docs/?x="><script>alert(1)</script>').content.decode()
    assert "<script>alert" not in page
    script = client.get(
        "/docs/", {"script": "", "lang": '");alert(1)//', "version": "</script>"}
    ).content.decode()
    (line,) = (line for line in script.splitlines() if "url:" in line)
    assert re.fullmatch(r'  url: "/v1/schema\?[\w=%.\\+-]*",', line)


def test_the_policy_allows_nothing_but_this_service(client: Client) -> None:
    policy = dict(
        each.strip().split(" ", 1)
        for each in client.get("/docs/")["Content-Security-Policy"].split(";")
    )
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == "'self'"
    assert "unsafe" not in json.dumps(policy)
