import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import psycopg
import pytest
from django import db
from django.contrib import admin
from django.core.exceptions import (
    BadRequest,
    PermissionDenied,
    RequestDataTooBig,
    SuspiciousOperation,
)
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.test import Client, RequestFactory, override_settings
from django.urls import include, path
from django.views.decorators.csrf import csrf_protect
from django.views.decorators.http import require_safe
from procrastinate.exceptions import ConnectorException
from psycopg_pool import PoolTimeout
from rest_framework import exceptions, serializers
from rest_framework.parsers import FormParser
from rest_framework.permissions import AllowAny, BasePermission
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from config.platform.concurrency.batching import BatchedStatement
from config.platform.problems import rendering as handlers
from config.platform.problems.error_mapping import problem_of
from config.platform.problems.problem import (
    Fault,
    InternalError,
    InvalidRequest,
    NotAuthenticated,
    NotFound,
    Problem,
    RefusedUntil,
    ServiceUnavailable,
    pointer,
)
from config.platform.problems.rendering import openai_error, render
from tests.platform.written import Written
from usage.refusals import BudgetExceeded, DailyLimitReached, MonthlyCapExceeded

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
BROWSER = "text/html,application/xhtml+xml;q=0.9,*/*;q=0.8"
CANARY = "canary-7f3a9c"


class TokenExpired(Problem):
    code = "access_token_expired"
    status = 401
    title = "Access token expired"
    default_detail = "Refresh it."


class Teapot(Problem):
    code = "teapot"
    status = 418
    title = "Teapot"
    default_detail = "Short and stout."


class Item(serializers.Serializer[Any]):
    name = serializers.CharField(max_length=3)
    size = serializers.IntegerField(required=False)


class Order(serializers.Serializer[Any]):
    email = serializers.EmailField()
    items = Item(many=True, required=False)
    tags = serializers.ListField(child=serializers.CharField(max_length=2), required=False)
    labels = serializers.DictField(child=serializers.IntegerField(), required=False)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if attrs.get("email", "").startswith("nobody"):
            raise serializers.ValidationError("Nobody orders.", code="nobody")
        return attrs


class Nobody(BasePermission):
    def has_permission(self, request: Request, view: Any) -> bool:
        return False


class OrderView(APIView):
    authentication_classes = ()
    permission_classes = (AllowAny,)

    def post(self, request: Request) -> Response:
        order = Order(data=request.data)
        order.is_valid(raise_exception=True)
        return Response(order.validated_data)


class SecretView(APIView):
    authentication_classes = ()
    permission_classes = (Nobody,)

    def get(self, request: Request) -> Response:
        raise AssertionError


def raising(error: Callable[[], BaseException]) -> Any:
    """A view of REST framework and a plain one that both raise."""

    class Raises(APIView):
        authentication_classes = ()
        permission_classes = (AllowAny,)

        def get(self, request: Request) -> Response:
            raise error()

    def raises(request: HttpRequest) -> HttpResponse:
        raise error()

    return [path("api", Raises.as_view()), path("plain", raises)]


@require_safe
def read_only(request: HttpRequest) -> HttpResponse:
    return HttpResponse("read")


@csrf_protect
def form(request: HttpRequest) -> HttpResponse:
    return HttpResponse("saved")


def unwell(request: HttpRequest) -> HttpResponse:
    return JsonResponse({"status": "unavailable"}, status=503)


def prose(request: HttpRequest) -> HttpResponse:
    return HttpResponse("<h1>Not today</h1>", status=503, headers={"Retry-After": "7"})


def leaking() -> BaseException:
    error = RuntimeError(f"could not use {CANARY}")
    error.__cause__ = ValueError(CANARY)
    return error


ERRORS: dict[str, Callable[[], BaseException]] = {
    "problem": Teapot,
    "missing": lambda: Http404(CANARY),
    "denied": lambda: PermissionDenied(CANARY),
    "bad": lambda: BadRequest(CANARY),
    "suspicious": lambda: SuspiciousOperation(CANARY),
    "large": lambda: RequestDataTooBig(CANARY),
    "throttled": lambda: exceptions.Throttled(wait=12),
    "database": lambda: db.OperationalError(f"DETAIL: row ({CANARY})"),
    "data": lambda: db.DataError(CANARY),
    "closed": lambda: db.InterfaceError(CANARY),
    "pool": lambda: PoolTimeout(CANARY),
    "bug": leaking,
}

urlpatterns = [
    path("v1/orders", OrderView.as_view()),
    path("v1/llm/orders", OrderView.as_view()),
    path("v1/secret", SecretView.as_view()),
    path("v1/read-only", read_only),
    path("healthy", unwell),
    path("v1/prose", prose),
    path("admin/prose", prose),
    path("account/form", form),
    # Their pages name the console's.
    path("console/", admin.site.urls),
    path("v1/form", form),
    *[
        path(f"{prefix}{name}/", include(raising(error)))
        for name, error in ERRORS.items()
        for prefix in ("v1/", "admin/")
    ],
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
def client() -> Client:
    return Client(raise_request_exception=False)


def problem_in(response: Any) -> dict[str, Any]:
    assert response.headers["Content-Type"] == "application/problem+json"
    problem: dict[str, Any] = json.loads(response.content)
    assert problem["status"] == response.status_code
    assert problem["type"] == f"/problems/{problem['code']}"
    assert problem["request_id"] == response.headers["X-Request-ID"]
    return problem


def test_a_problem_has_exactly_the_promised_members(client: Client) -> None:
    problem = problem_in(client.get("/v1/problem/api"))
    assert problem == {
        "type": "/problems/teapot",
        "title": "Teapot",
        "status": 418,
        "detail": "Short and stout.",
        "code": "teapot",
        "request_id": problem["request_id"],
    }


def test_members_and_headers_of_a_problem_are_added_but_replace_nothing(rf: RequestFactory) -> None:
    problem = RefusedUntil(
        now=NOW,
        until=NOW.replace(second=9),
        headers={"x-should-retry": "false"},
        cap=500,
        status=200,
        code="x",
    )
    response = render(rf.get("/v1/usage/me"), problem)
    body = json.loads(response.content)
    assert response.status_code == body["status"] == 429
    assert body["code"] == "rate_limited"
    assert (body["cap"], body["retry_after_iso"]) == (500, "2026-11-20T12:00:09Z")
    assert (response["Retry-After"], response["x-should-retry"]) == ("9", "false")


@pytest.mark.parametrize(
    ("problem", "address", "retry"),
    [
        (NotAuthenticated(), "/v1/llm/messages", "false"),
        (NotAuthenticated(), "/v1/usage/me", None),
        (TokenExpired(), "/v1/llm/messages", None),
        (Teapot(), "/v1/llm/messages", None),
    ],
)
def test_sdks_are_told_that_no_repeat_of_a_refused_key_helps(
    rf: RequestFactory, problem: Problem, address: str, retry: str | None
) -> None:
    assert render(rf.get(address), problem).get("x-should-retry") == retry


def test_members_may_be_instants_and_ids(rf: RequestFactory) -> None:
    response = render(rf.get("/"), Teapot(at=NOW, id=UUID(int=1)))
    body = json.loads(response.content)
    assert (body["at"], body["id"]) == (
        "2026-11-20T12:00:00Z",
        "00000000-0000-0000-0000-000000000001",
    )


def test_lone_surrogates_in_a_pointer_do_not_break_the_answer(rf: RequestFactory) -> None:
    problem = InvalidRequest(errors=[Fault("/\ud800", "invalid", "No.")])
    assert json.loads(render(rf.get("/"), problem).content)["errors"][0]["pointer"] == "/?"


def test_errors_are_not_cached_unless_the_problem_allows_it(rf: RequestFactory) -> None:
    assert render(rf.get("/"), Teapot())["Cache-Control"] == "no-store"
    kept = Teapot(headers={"Cache-Control": "public, max-age=60"})
    assert render(rf.get("/"), kept)["Cache-Control"] == "public, max-age=60"


@pytest.mark.parametrize(
    "path",
    [
        *("/v1/chat/completions", "/v1/models", "/v1/messages", "/v1/models/a", "/v1/responses"),
        *("/chat/completions", "/models", "/openai/v1/embeddings", "/api/chat", "/llm/v1/messages"),
    ],
)
def test_an_sdk_with_another_base_address_hears_where_model_calls_are(
    client: Client, path: str
) -> None:
    problem = problem_in(client.post(path))
    assert (problem["code"], problem["detail"]) == ("not_found", problem["error"]["message"])
    assert "Model calls are under /v1/llm/." in problem["detail"]
    assert problem_in(client.get("/v1/modelling"))["detail"] == "Nothing was found at this address."


@pytest.mark.parametrize("path", ["/v1/llm/messages", "/v1/llm/v1/messages/count_tokens"])
def test_an_error_of_messages_has_its_id_where_their_sdks_look(
    rf: RequestFactory, path: str
) -> None:
    response = render(rf.post(path), Teapot())
    assert response["request-id"] == json.loads(response.content)["request_id"]
    assert "request-id" not in render(rf.post("/v1/llm/complete"), Teapot())


def test_a_401_challenges_and_names_the_token_only_where_one_was_refused(
    rf: RequestFactory,
) -> None:
    assert (
        render(rf.get("/"), TokenExpired())["WWW-Authenticate"]
        == 'Bearer realm="shell", error="invalid_token"'
    )
    missing = problem_of(exceptions.NotAuthenticated())
    assert missing is not None
    assert render(rf.get("/"), missing)["WWW-Authenticate"] == 'Bearer realm="shell"'
    assert "WWW-Authenticate" not in render(rf.get("/"), Teapot())


@pytest.mark.parametrize("kind", ["api", "plain"])
@pytest.mark.parametrize(
    ("name", "status", "code"),
    [
        ("problem", 418, "teapot"),
        ("missing", 404, "not_found"),
        ("denied", 403, "permission_denied"),
        ("bad", 400, "malformed_request"),
        ("suspicious", 400, "malformed_request"),
        ("large", 413, "request_too_large"),
        ("throttled", 429, "rate_limited"),
        ("database", 503, "service_unavailable"),
        ("data", 400, "invalid_request"),
        ("closed", 503, "service_unavailable"),
        ("pool", 503, "service_unavailable"),
        ("bug", 500, "internal_error"),
    ],
)
def test_every_exception_becomes_its_problem_wherever_it_is_raised(
    client: Client, name: str, kind: str, status: int, code: str
) -> None:
    response = client.get(f"/v1/{name}/{kind}", headers={"Accept": "*/*"})
    assert (response.status_code, problem_in(response)["code"]) == (status, code)
    assert CANARY.encode() not in response.content


@pytest.mark.parametrize("kind", ["api", "plain"])
def test_waits_are_stated_in_seconds(client: Client, kind: str) -> None:
    assert client.get(f"/v1/throttled/{kind}")["Retry-After"] == "12"
    assert client.get(f"/v1/database/{kind}")["Retry-After"] == "5"


@pytest.mark.parametrize("kind", ["api", "plain"])
def test_an_unexpected_error_is_logged_once_with_its_place_and_without_its_message(
    client: Client, kind: str, written: Written
) -> None:
    response = client.get(f"/v1/bug/{kind}")
    (line,) = written.beside_requests()
    assert (line["level"], line["event"], line["route"]) == (
        "error",
        "internal_error",
        f"v1/bug/{kind}",
    )
    assert line["request_id"] == response["X-Request-ID"]
    assert [each["class"] for each in line["exceptions"]] == ["RuntimeError", "ValueError"]
    assert line["exceptions"][0]["frames"][-1].startswith(
        "tests/platform/problems/test_handlers.py:"
    )
    assert CANARY not in json.dumps(line)


@pytest.mark.parametrize(
    "name", ["problem", "missing", "denied", "suspicious", "large", "throttled"]
)
def test_refusals_are_not_logged(client: Client, name: str, written: Written) -> None:
    client.get(f"/v1/{name}/api")
    client.get(f"/v1/{name}/plain")
    assert written.beside_requests() == []


@pytest.mark.parametrize(
    ("name", "event"), [("database", "database_unavailable"), ("data", "data_refused")]
)
def test_a_value_refused_by_the_database_is_a_warning(
    client: Client, written: Written, name: str, event: str
) -> None:
    client.get(f"/v1/{name}/api")
    (line,) = written.beside_requests()
    assert (line["level"], line["event"]) == ("warning", event)
    assert CANARY not in json.dumps(line)


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("question", "value"),
    [
        ("SELECT %s::text", "a\0b"),
        ("SELECT %s::jsonb", r'{"a": "\u0000"}'),
        ("SELECT %s::bigint", 2**70),
    ],
)
def test_values_that_no_column_can_hold_are_invalid_input(question: str, value: object) -> None:
    with db.connection.cursor() as cursor, pytest.raises(db.Error) as refused:
        cursor.execute(question, [value])
    assert isinstance(problem_of(refused.value), InvalidRequest)


def read_one(question: str) -> None:
    with db.connection.cursor() as cursor:
        cursor.execute(question)
        cursor.fetchone()


def read_all(question: str) -> None:
    with db.connection.cursor() as cursor:
        cursor.execute(question)
        list(cursor)


def read_many(question: str) -> None:
    with db.connection.chunked_cursor() as cursor:
        cursor.execute(question)
        cursor.fetchmany(2)


def read_by_statement(question: str) -> None:
    BatchedStatement(question).row(())


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("read", [read_one, read_all, read_many, read_by_statement])
@pytest.mark.parametrize("kept", ["timestamptz 'infinity'", "date '12000-01-01'"])
def test_unreadable_rows_are_not_invalid_input(read: Callable[[str], None], kept: str) -> None:
    db.connection.close()
    with pytest.raises(db.DataError) as unreadable:
        read(f"SELECT {kept}")
    assert problem_of(unreadable.value) is None


def test_errors_wrapped_by_the_queue_are_unwrapped() -> None:
    def wrapped(cause: BaseException | None) -> Problem | None:
        error = ConnectorException()
        error.__cause__ = cause
        return problem_of(error)

    away = wrapped(PoolTimeout())
    assert away is not None
    assert (away.code, away.headers) == ("service_unavailable", {"Retry-After": "5"})
    twice = ConnectorException()
    twice.__cause__ = psycopg.OperationalError()
    assert isinstance(wrapped(twice), ServiceUnavailable)
    assert isinstance(wrapped(psycopg.DataError()), InvalidRequest)
    assert wrapped(psycopg.ProgrammingError()) is None
    assert wrapped(None) is None


def test_raw_driver_errors_are_mapped_too() -> None:
    assert isinstance(problem_of(psycopg.OperationalError()), ServiceUnavailable)
    assert problem_of(psycopg.errors.UniqueViolation()) is None


def test_faults_of_input_have_pointers_and_codes(client: Client) -> None:
    order = {
        "email": "no",
        "items": [{"name": "abc"}, {"name": "abcd", "size": "x"}],
        "tags": ["ok", "long"],
        "labels": {"a/b~c": "x"},
    }
    response = client.post("/v1/orders", json.dumps(order), content_type="application/json")
    problem = problem_in(response)
    assert (response.status_code, problem["code"]) == (400, "invalid_request")
    assert [(each["pointer"], each["code"]) for each in problem["errors"]] == [
        ("/email", "invalid"),
        ("/items/1/name", "max_length"),
        ("/items/1/size", "invalid"),
        ("/tags/1", "max_length"),
        ("/labels/a~1b~0c", "invalid"),
    ]
    assert all(each["detail"] for each in problem["errors"])


def test_a_fault_of_the_whole_input_has_an_empty_pointer(client: Client) -> None:
    body = json.dumps({"email": "nobody@shell.test"})
    response = client.post("/v1/orders", body, content_type="application/json")
    (fault,) = problem_in(response)["errors"]
    assert (fault["pointer"], fault["code"]) == ("", "nobody")


def test_an_empty_body_where_an_object_is_needed_is_malformed(client: Client) -> None:
    response = client.generic("POST", "/v1/orders", b"", content_type="application/json")
    assert problem_in(response)["code"] == "malformed_request"


def test_model_calls_have_the_error_that_openai_clients_read(client: Client) -> None:
    body = json.dumps({"email": "a@shell.test", "items": [{"name": "abcd"}]})
    response = client.post("/v1/llm/orders", body, content_type="application/json")
    assert problem_in(response)["error"] == {
        "message": "items[0].name: Ensure this field has no more than 3 characters.",
        "type": "invalid_request_error",
        "code": "invalid_request",
        "param": "items[0].name",
    }
    unresolved = problem_in(client.get("/v1/llm/nothing-here"))
    assert unresolved["error"]["type"] == "invalid_request_error"
    assert unresolved["error"]["param"] is None


@pytest.mark.parametrize(
    ("code", "status", "kind"),
    [
        ("not_found", 404, "invalid_request_error"),
        ("request_too_large", 413, "invalid_request_error"),
        ("access_revoked", 401, "authentication_error"),
        ("licence_suspended", 403, "permission_error"),
        ("rate_limited", 429, "rate_limit_error"),
        ("cap_reserved", 429, "rate_limit_error"),
        ("internal_error", 500, "server_error"),
        ("provider_error", 502, "api_error"),
        ("provider_timeout", 504, "api_error"),
    ],
)
def test_openai_types_follow_its_conventions(code: str, status: int, kind: str) -> None:
    problem = InternalError()
    problem.code, problem.status = code, status  # type: ignore[misc]
    assert openai_error(problem) == {
        "message": problem.detail,
        "type": kind,
        "code": code,
        "param": None,
    }


@pytest.mark.parametrize("kind", [MonthlyCapExceeded, DailyLimitReached, BudgetExceeded])
def test_spent_tokens_have_openais_code_for_them(kind: type[RefusedUntil]) -> None:
    now = datetime.now(UTC)
    error = openai_error(kind(now=now, until=now))
    assert (error["code"], error["type"]) == ("insufficient_quota", "insufficient_quota")


def test_an_error_tells_sdks_the_first_fault_and_how_many_there_are() -> None:
    faults = [Fault("/tools/0/type", "invalid", "No."), Fault("/n", "invalid", "Not two.")]
    assert openai_error(InvalidRequest(errors=faults))["message"] == (
        "tools[0].type: No. (The first of 2 faults.)"
    )
    assert openai_error(InvalidRequest("Nothing of it.", errors=faults))["message"] == (
        "Nothing of it."
    )
    assert openai_error(InvalidRequest(errors=[Fault("", "invalid", "No.")]))["message"] == "No."


def test_a_wrong_method_lists_the_allowed_ones(client: Client) -> None:
    for address in ("/v1/orders", "/v1/read-only"):
        response = client.put(address)
        assert problem_in(response)["code"] == "method_not_allowed"
        assert response["Allow"]


def test_unknown_media_types_are_refused(client: Client) -> None:
    body = json.dumps({"email": "a@shell.test"})
    refused = client.post("/v1/orders", body, content_type="text/csv")
    assert (refused.status_code, problem_in(refused)["code"]) == (415, "unsupported_media_type")
    refused = client.post(
        "/v1/orders", body, content_type="application/json", headers={"Accept": "text/csv"}
    )
    assert (refused.status_code, problem_in(refused)["code"]) == (406, "not_acceptable")


def test_a_missing_permission_is_a_problem(client: Client) -> None:
    assert problem_in(client.get("/v1/secret"))["code"] == "permission_denied"


def test_an_unknown_address_is_a_problem_for_everyone(client: Client) -> None:
    for accept in ("*/*", BROWSER, "application/json"):
        response = client.get("/v1/nothing/secret-in-the-path", headers={"Accept": accept})
        assert problem_in(response)["code"] == "not_found"
        assert b"secret-in-the-path" not in response.content


def test_a_bad_host_is_a_problem_that_does_not_repeat_it(client: Client) -> None:
    response = client.get("/v1/read-only", headers={"Host": f"{CANARY}.example"})
    problem = problem_in(response)
    assert (response.status_code, problem["code"]) == (400, "malformed_request")
    assert "host" in problem["detail"]
    assert CANARY.encode() not in response.content


def test_a_browser_on_a_page_of_ours_gets_a_page(client: Client) -> None:
    for address, status in (
        ("/admin/bug/plain", 500),
        ("/admin/missing/plain", 404),
        ("/account/nothing", 404),
    ):
        response = client.get(address, headers={"Accept": BROWSER})
        assert response.status_code == status
        assert response["Content-Type"] == "text/html; charset=utf-8"
        assert response["Content-Security-Policy"].startswith("default-src 'none'")
        assert response["X-Request-ID"] in response.content.decode()
        assert CANARY.encode() not in response.content
        assert problem_in(client.get(address))["status"] == status


def test_a_form_without_its_token_is_refused_as_page_or_json() -> None:
    client = Client(enforce_csrf_checks=True)
    page = client.post("/account/form", headers={"Accept": BROWSER})
    assert (page.status_code, page["Content-Type"]) == (403, "text/html; charset=utf-8")
    assert (
        problem_in(client.post("/v1/form", headers={"Accept": BROWSER}))["code"]
        == "permission_denied"
    )


def test_text_errors_of_libraries_become_problems(client: Client) -> None:
    response = client.get("/v1/prose")
    assert problem_in(response)["code"] == "service_unavailable"
    assert response["Retry-After"] == "7"
    assert client.get("/admin/prose", headers={"Accept": BROWSER}).content == b"<h1>Not today</h1>"


def test_json_reports_are_left_unchanged(client: Client) -> None:
    response = client.get("/healthy")
    assert (response.status_code, response.json()) == (503, {"status": "unavailable"})


def test_other_api_errors_are_mapped_by_status() -> None:
    class Gone(exceptions.APIException):
        status_code = 404

    class Odd(exceptions.APIException):
        status_code = 599

    assert isinstance(problem_of(Gone()), NotFound)
    assert problem_of(Odd()) is None


def test_pointers_escape_their_separators() -> None:
    assert pointer(["a/b", "c~d", 0]) == "/a~1b/c~0d/0"
    assert pointer([]) == ""


def test_a_long_name_is_cut_in_a_pointer() -> None:
    assert pointer(["a", "k" * 100, "k" * 101]) == f"/a/{'k' * 100}/{'k' * 99}…"
    # Cut before it is escaped, so that no escape is divided.
    assert pointer(["~" * 30_000]) == f"/{'~0' * 99}…"


def test_only_the_first_of_many_faults_are_reported(client: Client) -> None:
    order = {"email": "a@shell.test", "items": [], "tags": ["long"] * 1000}
    order["labels"] = {"k" * 30_000: "x"}
    response = client.post("/v1/orders", json.dumps(order), content_type="application/json")
    faults = problem_in(response)["errors"]
    assert [each["pointer"] for each in faults] == [f"/tags/{index}" for index in range(20)]
    del order["tags"]
    response = client.post("/v1/orders", json.dumps(order), content_type="application/json")
    assert max(len(each["pointer"]) for each in problem_in(response)["errors"]) < 200


def test_a_form_parser_reports_problems_too(client: Client) -> None:
    assert FormParser not in OrderView.parser_classes
    response = client.post("/v1/orders", {"email": "a@shell.test"})
    assert problem_in(response)["code"] == "unsupported_media_type"
