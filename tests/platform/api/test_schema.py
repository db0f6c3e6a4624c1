import json
from collections.abc import Iterator
from typing import Any

import pytest
from django.test import Client, override_settings
from django.urls import path
from drf_spectacular.drainage import GENERATOR_STATS
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from drf_spectacular.validation import validate_schema
from jsonschema import Draft202012Validator
from rest_framework import serializers
from rest_framework.permissions import AllowAny
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.viewsets import ViewSet

from accounts.sessions.sign_in import InvalidCredentials
from config.platform.api.negotiation import WhateverAccept
from config.platform.api.schema import problems
from config.platform.problems import rendering as handlers
from config.platform.problems.problem import NotFound, RequestTooLarge, known_problems
from config.platform.problems.schema import headers_of
from usage.refusals import DailyLimitReached, MonthlyCapExceeded

DOCUMENTED_BEFORE_ANY_VIEW = {"400", "413", "500", "503"}
# Answered before anything can refuse.
HEALTH = {"/healthz", "/livez"}


class Thing(serializers.Serializer[Any]):
    name = serializers.CharField(max_length=5)


@problems("not_configured")
class Things(ViewSet):
    """Open to everyone."""

    authentication_classes: Any = ()
    permission_classes = (AllowAny,)

    @problems("invalid_credentials")
    @extend_schema(operation_id="make", request=Thing, responses=Thing)
    def make(self, request: Request) -> Response:
        thing = Thing(data=request.data)
        thing.is_valid(raise_exception=True)
        if thing.validated_data["name"] == "nope":
            raise InvalidCredentials
        return Response(thing.data)

    @extend_schema(operation_id="make_limited", request=Thing, responses=Thing)
    def make_limited(self, request: Request) -> Response:
        return Response({"name": "abc"})

    @extend_schema(operation_id="look", responses=Thing)
    def look(self, request: Request, name: str) -> Response:
        if name == "none":
            raise NotFound
        return Response({"name": name})


class Owned(ViewSet):
    """Needs a token."""

    @problems(MonthlyCapExceeded.code, DailyLimitReached.code, "rate_limited")
    @extend_schema(operation_id="ask", request=Thing, responses=Thing)
    def ask(self, request: Request) -> Response:
        return Response({"name": "abc"})


class Anything(ViewSet):
    """Whatever the Accept, and with headers of its own."""

    authentication_classes: Any = ()
    permission_classes = (AllowAny,)
    content_negotiation_class = WhateverAccept

    @extend_schema(
        operation_id="anything",
        parameters=[
            OpenApiParameter(
                "ETag", str, OpenApiParameter.HEADER, response=[200], description="Of the answer."
            ),
        ],
        responses={200: Thing, 404: OpenApiResponse(description="Said otherwise.")},
    )
    def get(self, request: Request) -> Response:
        return Response({"name": "x"}, headers={"ETag": '"x"'})


class Mistaken(ViewSet):
    authentication_classes: Any = ()
    permission_classes = (AllowAny,)

    @problems("no_such_code")
    @extend_schema(operation_id="mistaken", responses=Thing)
    def get(self, request: Request) -> Response:
        return Response({"name": "abc"})


urlpatterns = [
    path("v1/things", Things.as_view({"post": "make"})),
    path("v1/things/<slug:name>", Things.as_view({"get": "look"})),
    path("v1/auth/things", Things.as_view({"post": "make_limited"})),
    path("v1/llm/ask", Owned.as_view({"post": "ask"})),
    path("v1/anything", Anything.as_view({"get": "get"})),
]
handler400 = handlers.bad_request
handler403 = handlers.permission_denied
handler404 = handlers.page_not_found
handler500 = handlers.server_error


@pytest.fixture(autouse=True)
def _own_addresses() -> Iterator[None]:
    with override_settings(ROOT_URLCONF=__name__, SECURE_SSL_REDIRECT=False):
        yield


@pytest.fixture
def document() -> dict[str, Any]:
    GENERATOR_STATS.reset()
    document: dict[str, Any] = SchemaGenerator().get_schema(request=None, public=True)
    assert not GENERATOR_STATS
    return document


def problems_of(response: dict[str, Any]) -> list[str]:
    """The components of the problems that an answer can be."""
    shape = response["content"]["application/problem+json"]["schema"]
    return [each["$ref"].rpartition("/")[2] for each in shape.get("oneOf", [shape])]


def members(document: dict[str, Any], component: str) -> dict[str, Any]:
    """The properties of a problem, with those of the components that it extends."""
    properties: dict[str, Any] = {}
    for part in document["components"]["schemas"][component]["allOf"]:
        name = part.get("$ref", "").rpartition("/")[2]
        extended = document["components"]["schemas"].get(name, {})
        properties |= members(document, name) if "allOf" in extended else {}
        properties |= extended.get("properties", {}) | part.get("properties", {})
    return properties


def codes(document: dict[str, Any], operation: dict[str, Any]) -> dict[str, list[str]]:
    """The codes of an operation's problems by status."""
    found: dict[str, list[str]] = {}
    for status, response in operation["responses"].items():
        if "application/problem+json" in response.get("content", {}):
            kinds = [members(document, name) for name in problems_of(response)]
            assert {kind["status"]["const"] for kind in kinds} == {int(status)}
            found[status] = [kind["code"]["const"] for kind in kinds]
    return found


def assert_described(document: dict[str, Any], operation: dict[str, Any], response: Any) -> None:
    """Holds an answer to its description: status, content type, required headers and shape."""
    described = operation["responses"][str(response.status_code)]
    (shape,) = (
        media["schema"]
        for kind, media in described["content"].items()
        if response["Content-Type"].startswith(kind)
    )
    faults = list(
        Draft202012Validator({**shape, "components": document["components"]}).iter_errors(
            json.loads(response.content)
        )
    )
    assert not faults
    required = {
        name for name, each in document["components"]["headers"].items() if each.get("required")
    }
    assert required & described["headers"].keys() <= set(response.headers)


def test_the_document_is_valid_openapi_3_1(document: dict[str, Any]) -> None:
    assert document["openapi"] == "3.1.0"
    validate_schema(document)


def test_every_operation_lists_the_problems_before_a_view_runs(document: dict[str, Any]) -> None:
    for address, path_item in document["paths"].items():
        for operation in path_item.values():
            if address in HEALTH:
                assert not operation["responses"].keys() & {"400", "401", "413", "500"}
            else:
                assert operation["responses"].keys() >= DOCUMENTED_BEFORE_ANY_VIEW


def test_health_is_described_as_it_answers(document: dict[str, Any], db: None) -> None:
    for address in sorted(HEALTH):
        operation = document["paths"][address]["get"]
        response = Client().get(address)
        if response.status_code == 204:
            assert "204" in operation["responses"]
        else:
            assert_described(document, operation, response)


def test_an_operation_names_the_problems_of_its_kind_and_of_its_rules(
    document: dict[str, Any],
) -> None:
    assert codes(document, document["paths"]["/v1/things"]["post"]) == {
        "400": ["malformed_request", "invalid_request"],
        "401": ["invalid_credentials"],
        "406": ["not_acceptable"],
        "408": ["request_timeout"],
        "413": ["request_too_large"],
        "415": ["unsupported_media_type"],
        "500": ["internal_error"],
        "503": ["service_unavailable", "not_configured"],
    }
    assert codes(document, document["paths"]["/v1/things/{name}"]["get"]) == {
        "400": ["malformed_request", "invalid_request"],
        "404": ["not_found"],
        "406": ["not_acceptable"],
        "413": ["request_too_large"],
        "500": ["internal_error"],
        "503": ["service_unavailable", "not_configured"],
    }


def test_limits_by_address_are_described_where_they_hold(document: dict[str, Any]) -> None:
    assert codes(document, document["paths"]["/v1/auth/things"]["post"])["429"] == ["rate_limited"]
    assert "429" not in document["paths"]["/v1/things"]["post"]["responses"]


def test_operations_with_a_token_list_its_problems(document: dict[str, Any]) -> None:
    ask, make = document["paths"]["/v1/llm/ask"]["post"], document["paths"]["/v1/things"]["post"]
    assert ask["security"] == [{"accessToken": []}]
    assert codes(document, ask)["401"] == [
        "not_authenticated",
        "invalid_access_token",
        "access_token_expired",
        "access_revoked",
    ]
    assert make["security"] == []
    scheme = document["components"]["securitySchemes"]["accessToken"]
    assert (scheme["type"], scheme["scheme"]) == ("http", "bearer")
    assert OpenApiParameter.HEADER not in {each["in"] for each in ask.get("parameters", ())}


def test_caps_and_limits_share_a_status_and_describe_their_members(
    document: dict[str, Any],
) -> None:
    ask = document["paths"]["/v1/llm/ask"]["post"]
    assert codes(document, ask)["429"] == [
        "monthly_cap_exceeded",
        "daily_limit_reached",
        "rate_limited",
    ]
    assert problems_of(ask["responses"]["429"]) == [
        "MonthlyCapExceededCallProblem",
        "DailyLimitReachedCallProblem",
        "RateLimitedCallProblem",
    ]
    spent = members(document, "MonthlyCapExceededCallProblem").keys()
    assert {"retry_after_iso", "cap", "used", "reserved", "dimension", "error"} <= spent
    assert "dimension" not in members(document, "DailyLimitReachedCallProblem")
    make = document["paths"]["/v1/things"]["post"]["responses"]["413"]
    assert "error" not in members(document, *problems_of(make))


def test_operations_that_ignore_accept_list_no_406(document: dict[str, Any]) -> None:
    anything = document["paths"]["/v1/anything"]["get"]
    assert "406" not in anything["responses"]
    assert anything["responses"]["404"]["description"] == "Said otherwise."
    assert anything["responses"]["200"]["headers"].keys() == {"X-Request-ID", "ETag"}


def test_only_problems_that_somebody_answers_are_components(document: dict[str, Any]) -> None:
    components = document["components"]["schemas"]
    assert {"Problem", "ProblemBase", "InvalidCredentialsProblem"} <= components.keys()
    assert "StateInvalidProblem" not in components
    assert "InvalidCredentialsCallProblem" not in components


def test_headers_of_answers_are_described(document: dict[str, Any]) -> None:
    responses = document["paths"]["/v1/llm/ask"]["post"]["responses"]
    assert all("X-Request-ID" in response["headers"] for response in responses.values())
    assert "WWW-Authenticate" in responses["401"]["headers"]
    assert "Retry-After" in responses["429"]["headers"]
    assert "Retry-After" in responses["503"]["headers"]
    # Also a provider's failure may say when to come again.
    assert all("Retry-After" in headers_of(status, has_etag=False) for status in ("502", "504"))


def test_codes_are_one_closed_list(document: dict[str, Any]) -> None:
    listed = document["components"]["schemas"]["ProblemCode"]["enum"]
    assert listed == sorted(set(listed))
    assert {
        "malformed_request",
        "invalid_credentials",
        "monthly_cap_exceeded",
        "internal_error",
    } <= set(listed)
    named = {
        code
        for item in document["paths"].values()
        for operation in item.values()
        for each in codes(document, operation).values()
        for code in each
    }
    assert named <= set(listed)


def test_the_general_problem_of_a_shared_code_is_described() -> None:
    class HeadersTooLarge(RequestTooLarge):
        status = 431

    assert known_problems()[HeadersTooLarge.code] is RequestTooLarge


def test_an_unknown_code_is_an_error_of_the_document(
    capsys: pytest.CaptureFixture[str],
) -> None:
    GENERATOR_STATS.reset()
    SchemaGenerator(patterns=[path("v1/mistaken", Mistaken.as_view({"get": "get"}))]).get_schema(
        public=True
    )
    assert GENERATOR_STATS
    assert "no_such_code" in capsys.readouterr().err
    GENERATOR_STATS.reset()


@pytest.mark.parametrize(
    ("method", "address", "body", "headers", "status"),
    [
        ("POST", "/v1/things", '{"name": "abc"}', {}, 200),
        ("POST", "/v1/things", '{"name": "too long"}', {}, 400),
        ("POST", "/v1/things", "{}", {}, 400),
        ("POST", "/v1/things", "{", {}, 400),
        ("POST", "/v1/things", "", {}, 400),
        ("POST", "/v1/things", '{"name": "nope"}', {}, 401),
        ("POST", "/v1/things", '{"name": "abc"}', {"Accept": "text/csv"}, 406),
        ("POST", "/v1/things", '{"name": "abc"}', {"Host": "elsewhere.example"}, 400),
        ("POST", "/v1/things", "x" * 70_000, {}, 413),
        ("POST", "/v1/things", '{"name": "abc"}', {"Content-Type": "text/csv"}, 415),
        ("GET", "/v1/things/abc", "", {}, 200),
        ("GET", "/v1/things/none", "", {}, 404),
        ("POST", "/v1/llm/ask", '{"name": "abc"}', {}, 401),
        ("POST", "/v1/llm/ask", '{"name": "abc"}', {"Authorization": "Bearer nonsense"}, 401),
        ("POST", "/v1/llm/ask", "x" * 9_000_000, {}, 413),
        ("GET", "/v1/anything", "", {"Accept": "text/csv"}, 200),
    ],
)
def test_answers_match_their_description(
    document: dict[str, Any],
    method: str,
    address: str,
    body: str,
    headers: dict[str, str],
    status: int,
) -> None:
    kind = headers.pop("Content-Type", "application/json")
    response = Client().generic(method, address, body, content_type=kind, headers=headers)
    assert response.status_code == status
    described = address.replace("/things/abc", "/things/{name}").replace(
        "/things/none", "/things/{name}"
    )
    assert_described(document, document["paths"][described][method.lower()], response)
