"""Access over HTTP: status, code and shape."""

from datetime import datetime

import pytest
from rest_framework.test import APIClient

from accounts.audit import Actor
from accounts.models import AuditEvent, Client, RefreshToken, Session, User
from accounts.people import users
from accounts.people.users import hash_password
from accounts.sessions.refresh_tokens import RefreshSecret
from accounts.sessions.revocation import revoke_all, sign_out
from accounts.sessions.sign_in import Device, TokenPair, sign_in
from tests.conftest import PASSWORD

pytestmark = pytest.mark.django_db
LOGIN, REFRESH, LOGOUT = "/v1/auth/login", "/v1/auth/refresh", "/v1/auth/logout"


@pytest.mark.usefixtures("signing_key")
class TestLogin:
    def test_a_pair_is_exactly_three_members_and_never_cached(
        self, api: APIClient, user: User
    ) -> None:
        body = {"email": user.email, "password": PASSWORD, "device_fp": "desk", "extra": "ignored"}
        response = api.post(LOGIN, body, format="json")
        assert response.status_code == 200
        assert set(response.json()) == {"access", "refresh", "expires_in"}
        assert response["Cache-Control"] == "no-store"
        assert Session.objects.get().device_fp == "desk"

    def test_a_refusal_is_a_typed_problem(self, api: APIClient, user: User) -> None:
        response = api.post(LOGIN, {"email": user.email, "password": "wrong"}, format="json")
        assert (response.status_code, response["Content-Type"]) == (401, "application/problem+json")
        problem = response.json()
        assert set(problem) == {"type", "title", "status", "detail", "code", "request_id"}
        assert problem["type"] == "/problems/invalid_credentials"

    @pytest.mark.parametrize(
        ("body", "pointers"),
        [
            ({}, ["/email", "/password"]),
            ({"email": "a@b.c", "password": "x" * 1025}, ["/password"]),
            ({"email": "a@b.c", "password": ""}, ["/password"]),
            ({"email": ["a"], "password": {}}, ["/email", "/password"]),
            ({"email": "a@b.c", "password": "x", "device_fp": "d" * 201}, ["/device_fp"]),
        ],
    )
    def test_bad_input_is_pointed_at(self, api: APIClient, body: dict, pointers: list[str]) -> None:
        response = api.post(LOGIN, body, format="json")
        assert (response.status_code, response.json()["code"]) == (400, "invalid_request")
        assert sorted(fault["pointer"] for fault in response.json()["errors"]) == pointers

    def test_spaces_of_a_password_count(self, api: APIClient, user: User) -> None:
        response = api.post(LOGIN, {"email": user.email, "password": f" {PASSWORD}"}, format="json")
        assert response.status_code == 401

    def test_failed_logins_of_an_account_are_limited_and_good_ones_are_not(
        self, api: APIClient, user: User, settings
    ) -> None:
        settings.RATE_LIMITS = {"auth.account": "3/h"}
        right, wrong = ({"email": user.email, "password": each} for each in (PASSWORD, "wrong"))
        assert [api.post(LOGIN, right, format="json").status_code for _ in range(5)] == [200] * 5
        assert [api.post(LOGIN, wrong, format="json").status_code for _ in range(3)] == [401] * 3
        refused = api.post(LOGIN, {**wrong, "email": user.email.upper()}, format="json")
        assert (refused.status_code, refused.json()["code"]) == (429, "rate_limited")
        assert int(refused["Retry-After"]) > 0
        other = {"email": "other@acme.test", "password": "wrong"}
        assert api.post(LOGIN, other, format="json").status_code == 401


class TestRefresh:
    @pytest.mark.parametrize("around", ["{}\n", "\r\n{}", " {} ", "\t{}\u00a0"])
    def test_blanks_around_a_token_are_no_part_of_it(
        self, api: APIClient, pair: TokenPair, around: str
    ) -> None:
        """asbmutil#18"""
        first = api.post(REFRESH, {"refresh": around.format(pair.refresh)}, format="json")
        assert first.status_code == 200
        body = {"refresh": around.format(first.json()["refresh"])}
        assert api.post(LOGOUT, body, format="json").status_code == 204
        assert not Session.objects.filter(ended_at=None).exists()

    def test_a_refresh_returns_the_next_pair_once(self, api: APIClient, pair: TokenPair) -> None:
        first = api.post(REFRESH, {"refresh": pair.refresh}, format="json")
        assert (first.status_code, first["Cache-Control"]) == (200, "no-store")
        again = api.post(REFRESH, {"refresh": pair.refresh}, format="json")
        assert (again.status_code, again.json()["code"]) == (401, "invalid_refresh_token")

    @pytest.mark.parametrize("token", ["", "x", "a" * 43, "é" * 43, "a\0", "a" * 5000])
    def test_nonsense_is_refused_as_any_other(
        self, api: APIClient, pair: TokenPair, token: str
    ) -> None:
        response = api.post(REFRESH, {"refresh": token}, format="json")
        assert response.status_code == (400 if token == "" else 401)


class TestLogout:
    def test_a_logout_ends_the_session_and_its_tokens(
        self, signed_in: APIClient, pair: TokenPair
    ) -> None:
        response = signed_in.post(LOGOUT, {"refresh": pair.refresh}, format="json")
        assert (response.status_code, response.content) == (204, b"")
        assert response["Clear-Site-Data"] == '"cache", "storage"'
        assert Session.objects.get().ended_by == Session.Ended.LOGOUT
        assert not RefreshToken.objects.unrevoked().exists()
        assert signed_in.get("/v1/auth/me").json()["code"] == "access_revoked"

    @pytest.mark.parametrize("token", ["", "x", "a" * 43, "a" * 5000, "a\0"])
    def test_a_logout_answers_the_same_for_any_token(
        self, api: APIClient, token: str, pair: TokenPair
    ) -> None:
        assert api.post(LOGOUT, {"refresh": token}, format="json").status_code == 204
        assert Session.objects.get().ended_at is None


class TestSessions:
    def test_a_person_sees_their_live_sessions_and_which_one_asks(
        self, signed_in: APIClient, user: User, now: datetime
    ) -> None:
        sign_in(email=user.email, password=PASSWORD, device=Device(fingerprint="phone"), now=now)
        gone = sign_in(email=user.email, password=PASSWORD, device=Device(), now=now)
        sign_out(presented=gone.refresh, by_address=None, request_id="", now=now)
        sessions = signed_in.get("/v1/auth/sessions").json()["sessions"]
        assert [set(each) for each in sessions] == [
            {"id", "device_fp", "started_at", "last_used_at", "current"}
        ] * 2
        assert sorted((each["device_fp"], each["current"]) for each in sessions) == [
            ("", True),
            ("phone", False),
        ]

    def test_all_can_be_ended_at_once_by_the_kill_switch(
        self, signed_in: APIClient, user: User, now: datetime
    ) -> None:
        sign_in(email=user.email, password=PASSWORD, device=Device(), now=now)
        response = signed_in.delete("/v1/auth/sessions")
        assert (response.status_code, response.content) == (204, b"")
        assert signed_in.get("/v1/auth/me").json()["code"] == "access_revoked"
        assert list(Session.objects.values_list("ended_by", flat=True)) == ["logout"] * 2
        event = AuditEvent.objects.get(action="user:tokens_revoked")
        assert (event.actor_id, event.reason) == (user.pk, "Signed out everywhere.")
        fresh = sign_in(email=user.email, password=PASSWORD, device=Device(), now=now)
        signed_in.credentials(HTTP_AUTHORIZATION=f"Bearer {fresh.access}")
        assert signed_in.get("/v1/auth/me").status_code == 200

    def test_ending_one_ends_that_one(
        self, signed_in: APIClient, user: User, now: datetime
    ) -> None:
        other = sign_in(email=user.email, password=PASSWORD, device=Device(), now=now)
        session = Session.objects.get(refresh_tokens=RefreshSecret.parse(other.refresh).id)
        assert signed_in.delete(f"/v1/auth/sessions/{session.pk}").status_code == 204
        assert signed_in.delete(f"/v1/auth/sessions/{session.pk}").json()["code"] == "not_found"
        assert signed_in.get("/v1/auth/me").status_code == 200
        assert Session.objects.filter(ended_at=None).count() == 1

    def test_nobody_ends_anothers(
        self, signed_in: APIClient, organisation: Client, now: datetime
    ) -> None:
        bob = User.objects.create_user("bob@acme.test", PASSWORD, client=organisation)
        sign_in(email=bob.email, password=PASSWORD, device=Device(), now=now)
        session = Session.objects.get(user=bob)
        assert signed_in.delete(f"/v1/auth/sessions/{session.pk}").status_code == 404
        assert Session.objects.get(pk=session.pk).ended_at is None


class TestPasswordChange:
    CHANGE = "/v1/auth/password/change"
    NEW = "staple battery horse correct"

    def test_a_password_change_ends_every_session_and_the_new_password_works(
        self, signed_in: APIClient, user: User, now: datetime
    ) -> None:
        body = {"current": PASSWORD, "new": self.NEW}
        assert signed_in.post(self.CHANGE, body, format="json").status_code == 204
        assert signed_in.get("/v1/auth/me").json()["code"] == "access_revoked"
        assert sign_in(email=user.email, password=self.NEW, device=Device(), now=now).access

    @pytest.mark.parametrize(
        ("body", "pointer"),
        [
            ({"current": "wrong", "new": NEW}, "/current"),
            ({"current": PASSWORD, "new": "12345678"}, "/new"),
        ],
    )
    def test_a_refusal_changes_nothing(
        self, signed_in: APIClient, user: User, body: dict, pointer: str
    ) -> None:
        response = signed_in.post(self.CHANGE, body, format="json")
        assert (response.status_code, response.json()["code"]) == (400, "invalid_request")
        assert {fault["pointer"] for fault in response.json()["errors"]} == {pointer}
        assert signed_in.get("/v1/auth/me").status_code == 200
        user.refresh_from_db()
        assert user.check_password(PASSWORD)

    def test_a_change_does_not_outlive_a_revocation(
        self, user: User, by: Actor, now: datetime, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def revoked_meanwhile(password: str, *, user: User) -> str:
            revoke_all(user_id=user.pk, by=by, reason="stolen", now=now)
            return hash_password(password, user=user)

        monkeypatch.setattr(users, "hash_password", revoked_meanwhile)
        with pytest.raises(users.WrongPassword):
            users.change_password(user_id=user.pk, current=PASSWORD, new=self.NEW, by=by, now=now)
        user.refresh_from_db()
        assert user.check_password(PASSWORD)

    def test_guessing_is_limited_like_a_login(self, signed_in: APIClient, settings) -> None:
        settings.RATE_LIMITS = {"auth.account": "2/h"}
        body = {"current": "wrong", "new": self.NEW}
        statuses = [signed_in.post(self.CHANGE, body, format="json").status_code for _ in range(3)]
        assert statuses == [400, 400, 429]
