"""Personal keys over HTTP: made, shown once, listed, ended, and good for model calls alone."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from procrastinate.contrib.django.models import ProcrastinateJob
from rest_framework.test import APIClient

from accounts.audit import Actor
from accounts.models import AuditEvent, User
from accounts.sessions.revocation import revoke_all
from licensing.models import Plan
from llmproxy.keys.key_text import KeyText
from llmproxy.models import PersonalKey
from tests.conftest import SecureClient
from tests.llmproxy.keys.conftest import Make, holding
from usage.models import Override

pytestmark = pytest.mark.django_db


def refused(response: Any) -> tuple[int, str]:
    return response.status_code, response.json()["code"]


def pointers(response: Any) -> list[str]:
    assert refused(response) == (400, "invalid_request"), response.content
    return [each["pointer"] for each in response.json()["errors"]]


class TestMaking:
    def test_a_key_is_shown_once_and_stored_as_a_hash(
        self, keyed_plan: Plan, signed_in: APIClient, user: User, now: datetime
    ) -> None:
        given = {"name": "Editor", "days": 30, "monthly_output_tokens": 5_000}
        response = signed_in.post("/v1/keys", given, format="json")
        assert response.status_code == 201
        assert response["Cache-Control"] == "no-store"
        body = response.json()
        assert set(body) == {"id", "name", "key", "expires_at"}
        text = KeyText.parse(body["key"])
        assert text is not None
        key = PersonalKey.objects.get()
        assert (str(key.pk), key.name, key.user) == (body["id"], "Editor", user)
        assert bytes(key.hash) == text.hashed
        assert key.monthly_output_tokens == 5_000
        assert key.expires_at - key.created_at == timedelta(days=30)
        assert body["expires_at"].endswith("Z")
        event = AuditEvent.objects.get(action="personal_key:made")
        assert (event.target_id, event.actor_id) == (str(user.pk), user.pk)
        assert event.after is not None
        assert event.after["key"] == body["id"]
        assert body["key"] not in str(event.after)
        assert "Editor" not in str(event.after), "which erasure could not remove"

    def test_the_person_is_told_by_mail_without_the_key(self, made: Make, user: User) -> None:
        text = made(name="Editor <b>")
        (job,) = ProcrastinateJob.objects.filter(task_name="mail.send")
        assert job.args["to"] == [user.email]
        assert job.args["subject"] == "A personal key was created"
        said = str(job.args)
        assert "Change your password" in said.replace("\\n", " ")
        assert text not in said
        assert "Editor" not in said

    def test_a_key_without_days_lasts_as_long_as_any(self, made: Make) -> None:
        made()
        key = PersonalKey.objects.get()
        assert key.expires_at - key.created_at == timedelta(days=90)
        assert key.monthly_output_tokens is None

    @pytest.mark.parametrize(
        ("given", "pointer"),
        [
            ({}, "/name"),
            ({"name": ""}, "/name"),
            ({"name": "x" * 61}, "/name"),
            ({"name": 5}, "/name"),
            ({"name": "x", "days": 0}, "/days"),
            ({"name": "x", "days": 91}, "/days"),
            ({"name": "x", "days": "30"}, "/days"),
            ({"name": "x", "days": 1.5}, "/days"),
            ({"name": "x", "days": True}, "/days"),
            ({"name": "x", "monthly_output_tokens": 15}, "/monthly_output_tokens"),
            ({"name": "x", "monthly_output_tokens": 100_001}, "/monthly_output_tokens"),
            ({"name": "x", "monthly_output_tokens": 2**63}, "/monthly_output_tokens"),
        ],
    )
    def test_a_fault_is_named(
        self, keyed_plan: Plan, signed_in: APIClient, given: dict[str, Any], pointer: str
    ) -> None:
        assert pointers(signed_in.post("/v1/keys", given, format="json")) == [pointer]
        assert not PersonalKey.objects.exists()

    def test_its_cap_may_be_as_high_as_its_persons_override(
        self, made: Make, user: User, now: datetime
    ) -> None:
        Override.objects.create(
            user=user,
            monthly_output_tokens=200_000,
            starts_at=now - timedelta(hours=1),
            ends_at=now + timedelta(days=1),
            reason="More",
        )
        assert made(monthly_output_tokens=200_000)

    def test_a_plan_without_keys_gives_none(self, signed_in: APIClient) -> None:
        response = signed_in.post("/v1/keys", {"name": "Editor"}, format="json")
        assert refused(response) == (403, "not_entitled")
        assert not PersonalKey.objects.exists()

    def test_ten_live_ones_are_the_most(self, made: Make, signed_in: APIClient) -> None:
        for _ in range(10):
            made()
        response = signed_in.post("/v1/keys", {"name": "Editor"}, format="json")
        assert refused(response) == (409, "too_many_keys")
        first, second, *_ = PersonalKey.objects.all()
        PersonalKey.objects.filter(pk=first.pk).update(
            created_at=datetime(2026, 1, 1, tzinfo=UTC), expires_at=datetime(2026, 2, 1, tzinfo=UTC)
        )
        assert made(), "an expired one counts no more"
        assert signed_in.delete(f"/v1/keys/{second.pk}").status_code == 204
        assert made(), "nor does one that was ended"


class TestListing:
    def test_the_live_ones_are_listed_without_their_texts(
        self, made: Make, signed_in: APIClient
    ) -> None:
        text = made(name="First")
        made(name="Second")
        response = signed_in.get("/v1/keys")
        second, first = response.json()["keys"]
        assert (first["name"], second["name"]) == ("First", "Second")
        assert set(first) == {"id", "name", "created_at", "expires_at", "last_used_at"}
        assert first["last_used_at"] is None
        assert text not in response.content.decode()
        signed_in.delete(f"/v1/keys/{first['id']}")
        assert [each["name"] for each in signed_in.get("/v1/keys").json()["keys"]] == ["Second"]

    def test_nobody_sees_or_ends_anothers(self, made: Make, signed_in: APIClient) -> None:
        made()
        other = User.objects.create_user("eve@acme.test")
        PersonalKey.objects.update(user=other)
        assert signed_in.get("/v1/keys").json() == {"keys": []}
        address = f"/v1/keys/{PersonalKey.objects.get().pk}"
        assert refused(signed_in.delete(address)) == (404, "not_found")
        assert refused(signed_in.delete(f"/v1/keys/{uuid4()}")) == (404, "not_found")
        assert PersonalKey.objects.get().ended_at is None

    def test_ending_is_once_and_leaves_an_event(
        self, made: Make, signed_in: APIClient, user: User
    ) -> None:
        text = made()
        address = f"/v1/keys/{PersonalKey.objects.get().pk}"
        assert signed_in.delete(address).status_code == 204
        assert refused(signed_in.delete(address)) == (404, "not_found")
        event = AuditEvent.objects.get(action="personal_key:ended")
        assert (event.target_id, event.actor_id) == (str(user.pk), user.pk)
        ended = holding(text).get("/v1/llm/models")
        assert (*refused(ended), ended["x-should-retry"]) == (401, "access_revoked", "false")


class TestWhereItIsGood:
    def test_a_key_lists_models_as_a_bearer_token_and_as_x_api_key(self, made: Make) -> None:
        text = made()
        assert holding(text).get("/v1/llm/models").status_code == 200
        assert SecureClient().get("/v1/llm/models", HTTP_X_API_KEY=text).status_code == 200
        lower = SecureClient().get("/v1/llm/models", HTTP_AUTHORIZATION=f"bearer {text}")
        assert lower.status_code == 200

    def test_an_access_token_may_come_as_x_api_key_there_too(self, pair: Any) -> None:
        api = SecureClient()
        assert api.get("/v1/llm/models", HTTP_X_API_KEY=pair.access).status_code == 200
        assert refused(api.get("/v1/usage/me", HTTP_X_API_KEY=pair.access)) == (
            401,
            "not_authenticated",
        )

    @pytest.mark.parametrize(
        ("method", "address"),
        [
            ("get", "/v1/keys"),
            ("post", "/v1/keys"),
            ("get", "/v1/auth/me"),
            ("get", "/v1/auth/sessions"),
            ("delete", "/v1/auth/sessions"),
            ("post", "/v1/auth/password/change"),
            ("get", "/v1/license/status"),
            ("get", "/v1/usage/me"),
            ("get", "/v1/connections"),
            ("post", "/v1/telemetry"),
            ("get", "/v1/apps/notes/manifest"),
        ],
    )
    def test_a_key_is_refused_at_all_other_endpoints(
        self, by_key: APIClient, method: str, address: str
    ) -> None:
        response = getattr(by_key, method)(
            address, **({"format": "json"} if method == "post" else {})
        )
        assert refused(response) == (401, "invalid_access_token")
        assert response["WWW-Authenticate"].startswith("Bearer")

    def test_a_bearer_token_wins_over_x_api_key(self, made: Make) -> None:
        text, api = made(), SecureClient()
        both = {"HTTP_AUTHORIZATION": f"Bearer {text}", "HTTP_X_API_KEY": "sk-ant-other"}
        assert api.get("/v1/llm/models", **both).status_code == 200
        other = {"HTTP_AUTHORIZATION": "Basic YTpi", "HTTP_X_API_KEY": text}
        assert api.get("/v1/llm/models", **other).status_code == 200

    @pytest.mark.parametrize(
        "bearer",
        # BerriAI/litellm#29190; a placeholder, another server's token, none, and one that is too long.
        ["sk-ant-oat01-x", "dummy", "a.b.c", "", "a b", "x" * 9000],
    )
    def test_a_bearer_token_of_others_hides_no_key(self, made: Make, bearer: str) -> None:
        text, api = made(), SecureClient()
        both = {"HTTP_AUTHORIZATION": f"Bearer {bearer}", "HTTP_X_API_KEY": text}
        assert api.get("/v1/llm/models", **both).status_code == 200
        neither = {**both, "HTTP_X_API_KEY": "sk-ant-other"}
        assert refused(api.get("/v1/llm/models", **neither)) == (401, "invalid_access_token")

    def test_a_key_or_token_of_ours_counts_before_x_api_key(
        self, made: Make, pair: Any, user: User, now: datetime
    ) -> None:
        text, api = made(), SecureClient()
        ours = f"Bearer {KeyText.new().text}"
        both = {"HTTP_AUTHORIZATION": ours, "HTTP_X_API_KEY": text}
        assert refused(api.get("/v1/llm/models", **both)) == (401, "invalid_access_token")
        revoke_all(user_id=user.pk, reason="Left", by=Actor.command("test"), now=now)
        both["HTTP_AUTHORIZATION"] = f"Bearer {pair.access}"
        assert refused(api.get("/v1/llm/models", **both)) == (401, "access_revoked")

    @pytest.mark.parametrize("given", ["sk-shell-", "sk-shell-" + "a" * 58, "sk-ant-x", "x y", "ü"])
    def test_a_text_that_is_no_key_is_invalid(self, db: None, given: str) -> None:
        for headers in ({"HTTP_X_API_KEY": given}, {"HTTP_AUTHORIZATION": f"Bearer {given}"}):
            response = SecureClient().get("/v1/llm/models", **headers)
            assert refused(response) == (401, "invalid_access_token"), headers
            # Claude Code repeats a 401 for a minute, in silence.
            assert response["x-should-retry"] == "false"

    def test_a_key_that_was_never_made_is_invalid(self, db: None) -> None:
        api = holding(KeyText.new().text)
        assert refused(api.get("/v1/llm/models")) == (401, "invalid_access_token")
