import pytest
from django.test import Client, override_settings
from django.urls import path

from config.platform.edge.outermost import POLICY
from config.urls import handler400, handler403, handler404, handler500, urlpatterns

__all__ = ["handler400", "handler403", "handler404", "handler500"]


def fail(request: object) -> None:
    raise RuntimeError("a fault of ours")


urlpatterns = [*urlpatterns, path("v1/fault", fail)]


@pytest.fixture
def client() -> Client:
    return Client(raise_request_exception=False)


@pytest.mark.django_db
@override_settings(ROOT_URLCONF=__name__)
@pytest.mark.parametrize(
    ("method", "address", "status"),
    [
        ("GET", "/healthz", 200),
        ("GET", "/livez", 204),
        ("DELETE", "/livez", 405),
        ("GET", "/nowhere", 404),
        ("GET", "/v1/auth/me", 401),
        ("GET", "/v1/auth/login", 405),
        ("POST", "/v1/auth/login", 400),
        ("GET", "/v1/schema", 200),
        ("GET", "/.well-known/jwks.json", 200),
        ("GET", "/v1/fault", 500),
        ("GET", "/static/nowhere.css", 404),
        ("GET", "/static/admin/css/base.css", 200),
    ],
)
def test_an_answer_that_is_no_page_may_run_and_frame_nothing(
    client: Client, method: str, address: str, status: int
) -> None:
    response = client.generic(method, address, secure=True)
    # A file is open until its answer was sent.
    response.close()
    assert response.status_code == status
    assert response["Content-Security-Policy"] == POLICY
    assert response["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize(
    "given", [{"HTTP_HOST": "elsewhere.test"}, {"CONTENT_LENGTH": "no number"}, {"secure": False}]
)
def test_an_answer_that_no_view_has_made_may_not_either(
    client: Client, given: dict[str, object]
) -> None:
    response = client.post("/v1/auth/login", "{}", "application/json", **{"secure": True, **given})
    assert response.status_code in {400, 403}
    assert response["Content-Security-Policy"] == POLICY
    assert response["X-Content-Type-Options"] == "nosniff"


@pytest.mark.django_db
@pytest.mark.parametrize("address", ["/docs/", "/admin/login/", "/account/password"])
def test_a_page_keeps_its_own_policy(client: Client, address: str) -> None:
    response = client.get(address, secure=True, HTTP_ACCEPT="text/html")
    assert response.status_code == 200
    policy = response["Content-Security-Policy"]
    assert policy != POLICY
    assert "frame-ancestors 'none'" in policy
    assert response["X-Content-Type-Options"] == "nosniff"
