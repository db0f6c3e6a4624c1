"""People whose plan has personal keys."""

from collections.abc import Callable

import pytest
from rest_framework.test import APIClient

from licensing.models import Plan
from tests.conftest import SecureClient

Make = Callable[..., str]


@pytest.fixture
def keyed_plan(plan: Plan) -> Plan:
    plan.allows_keys = True
    plan.save()
    return plan


@pytest.fixture
def made(keyed_plan: Plan, signed_in: APIClient) -> Make:
    """Makes a key over HTTP; gives its text."""

    def make(**members: object) -> str:
        response = signed_in.post("/v1/keys", {"name": "Editor", **members}, format="json")
        assert response.status_code == 201, response.content
        return str(response.json()["key"])

    return make


@pytest.fixture
def by_key(made: Make) -> APIClient:
    """A client that holds a key alone."""
    return holding(made())


def holding(key: str) -> APIClient:
    api = SecureClient()
    api.credentials(HTTP_AUTHORIZATION=f"Bearer {key}")
    return api
