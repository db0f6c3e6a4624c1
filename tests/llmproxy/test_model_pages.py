"""The list of models in Anthropic's shape, a page at a time."""

from typing import Any

import pytest
from rest_framework.test import APIClient

from llmproxy.models import LanguageModel, Provider, Route

pytestmark = pytest.mark.django_db
NAMES = ["claude-a", "claude-b", "claude-c"]


@pytest.fixture(autouse=True)
def models(plan: Any) -> None:
    at = Provider.objects.create(name="theirs", dialect="anthropic", base_url="https://a.test")
    for name in NAMES:
        model = LanguageModel.objects.create(name=name, provider_name=name)
        Route.objects.create(model=model, provider=at, provider_name=name)


def page(api: APIClient, **asked: Any) -> tuple[list[str], bool, str | None, str | None]:
    headers = {"anthropic-version": "2023-06-01"}
    response = api.get("/v1/llm/v1/models", asked, headers=headers)
    assert response.status_code == 200, response.content
    body = response.json()
    shown = [each["id"] for each in body["data"]]
    return shown, body["has_more"], body["first_id"], body["last_id"]


@pytest.mark.parametrize(
    ("asked", "shown", "has_more"),
    [
        ({}, NAMES, False),
        ({"limit": 3}, NAMES, False),
        ({"limit": 1}, NAMES[:1], True),
        ({"limit": 1, "after_id": "claude-a"}, NAMES[1:2], True),
        ({"limit": 1, "after_id": "claude-b"}, NAMES[2:], False),
        ({"after_id": "claude-c"}, [], False),
        # It has gone since the page before.
        ({"limit": 5, "after_id": "claude-aa"}, NAMES[1:], False),
        ({"limit": 1, "before_id": "claude-c"}, NAMES[1:2], True),
        ({"limit": 2, "before_id": "claude-c"}, NAMES[:2], False),
        ({"before_id": "claude-a", "after_id": ""}, [], False),
    ],
)
def test_a_page_says_whether_there_are_more(
    signed_in: APIClient, asked: dict[str, Any], shown: list[str], has_more: bool
) -> None:
    ends = (shown[0], shown[-1]) if shown else (None, None)
    assert page(signed_in, **asked) == (shown, has_more, *ends)


@pytest.mark.parametrize(
    ("asked", "pointer"),
    [
        ({"limit": 0}, "limit"),
        ({"limit": 1001}, "limit"),
        ({"limit": "x"}, "limit"),
        ({"after_id": "a", "before_id": "b"}, "before_id"),
    ],
)
def test_a_page_that_cannot_be_is_refused(
    signed_in: APIClient, asked: dict[str, Any], pointer: str
) -> None:
    headers = {"anthropic-version": "2023-06-01"}
    response = signed_in.get("/v1/llm/v1/models", asked, headers=headers)
    assert response.status_code == 400
    assert [each["pointer"].strip("/") for each in response.json()["errors"]] == [pointer]
    # Other callers get all, whatever they ask.
    assert signed_in.get("/v1/llm/v1/models", asked).status_code == 200
