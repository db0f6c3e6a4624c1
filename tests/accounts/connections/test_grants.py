"""Connections: completed, kept fresh by one refresh at a time, and never lost to a loser or an outage."""

import time
from collections.abc import Callable
from datetime import datetime, timedelta
from math import ceil
from threading import Event, Thread
from typing import Any

import pytest
from cryptography.fernet import Fernet
from django.db import IntegrityError
from django.db import connection as database
from django.db.models import F

from accounts.audit import Actor
from accounts.connections import grants, refreshing
from accounts.connections.authorisation import StateInvalid, begin
from accounts.connections.disconnecting import disconnect, revoke_later, tokens_of
from accounts.connections.grants import (
    Access,
    CodeRefused,
    ReauthorisationNeeded,
    RefreshUnderWay,
    access_token,
    complete,
)
from accounts.connections.providers import find
from accounts.models import AuditEvent, Connection, ConnectionRevocation, Session, User
from accounts.people.access import disable
from config.platform.encryption import decrypt
from config.platform.problems.problem import ProviderError, ProviderUnavailable
from tests.accounts.connections.conftest import REDIRECT, configure, connected
from tests.accounts.connections.party import Form, Party, Said, says, tokens
from tests.races import race
from tests.waiting import eventually

pytestmark = pytest.mark.django_db
HOURS_2 = timedelta(hours=2)


def asked(
    user: User,
    by: Actor,
    now: datetime,
    refused: str | None = None,
    before_asking: Callable[[], None] = lambda: None,
) -> Access:
    return access_token(
        user_id=user.pk,
        provider="sheets",
        refused=refused,
        before_asking=before_asking,
        by=by,
        now=now,
    )


def the_only() -> Connection:
    return Connection.objects.get()


class TestCompleting:
    def test_the_tokens_are_kept_encrypted_and_it_is_audited(
        self, party: Party, user: User, session: Session, by: Actor, now: datetime
    ) -> None:
        made = connected(user, session, by=by, now=now)
        assert tokens_of(made) == ["refresh-1", "access-1"]
        assert made.scopes == ["sheets"]
        assert made.state(at=now) == "healthy"
        row = str(Connection.objects.values().get())
        assert not [each for each in ("refresh-1", "access-1") if each in row + repr(made)]
        event = AuditEvent.objects.get(action="connection:authorised")
        assert (event.target, event.target_id) == (user.email, str(user.pk))
        assert event.after == {"provider": "sheets", "scopes": ["sheets"]}

    def test_a_new_grant_replaces_and_revokes_the_previous_one(
        self, party: Party, connection: Connection, user: User, session: Session, by: Actor,
        now: datetime,
    ) -> None:  # fmt: skip
        party.answers = [tokens(2, scope="b a")]
        made = connected(user, session, by=by, now=now)
        assert (made.pk, made.connected_at) == (connection.pk, now)
        assert made.scopes == ["a", "b"]
        assert asked(user, by, now).access_token == "access-2"
        assert ConnectionRevocation.objects.count() == 1

    def test_a_provider_that_keeps_one_grant_gets_no_revocation_that_ends_the_new_one(
        self, party: Party, settings: Any, user: User, session: Session, by: Actor, now: datetime
    ) -> None:
        configure(settings, sheets=party.provider(one_grant=True))
        connected(user, session, by=by, now=now)
        disconnect(user_id=user.pk, provider="sheets", by=by, now=now)
        assert ConnectionRevocation.objects.count() == 1
        connected(user, session, by=by, now=now)
        connected(user, session, by=by, now=now)
        assert not ConnectionRevocation.objects.exists()
        assert AuditEvent.objects.filter(action="connection:revocation_dismissed").count() == 1

    def test_the_same_tokens_again_are_not_revoked(
        self, party: Party, connection: Connection, user: User, session: Session, by: Actor,
        now: datetime,
    ) -> None:  # fmt: skip
        connected(user, session, by=by, now=now)
        assert not ConnectionRevocation.objects.exists()
        disconnect(user_id=user.pk, provider="sheets", by=by, now=now)
        revoke_later(user_id=user.pk, provider="sheets", tokens=["another", None], now=now)
        connected(user, session, by=by, now=now)
        # A revocation queued since the connection ended would end the current connection.
        [left] = ConnectionRevocation.objects.all()
        assert (
            decrypt(bytes(left.tokens), place=left.place("tokens"))
            == b'{"refresh_token": "another"}'
        )

    def test_a_code_that_is_refused_leaves_what_was_there(
        self, party: Party, connection: Connection, user: User, session: Session, by: Actor,
        now: datetime,
    ) -> None:  # fmt: skip
        party.answers = [says(400, error="invalid_grant")]
        with pytest.raises(CodeRefused):
            connected(user, session, by=by, now=now)
        party.answers = [says(500)]
        with pytest.raises(ProviderError):
            connected(user, session, by=by, now=now)
        assert tokens_of(the_only()) == ["refresh-1", "access-1"]

    @pytest.mark.parametrize("issuer", ["https://other.test", ""])
    def test_an_answer_of_another_issuer_is_refused(
        self, party: Party, settings: Any, user: User, session: Session, by: Actor, now: datetime,
        issuer: str,
    ) -> None:  # fmt: skip
        configure(settings, sheets=party.provider(issuer="https://sheets.test"))
        who: dict[str, Any] = {"user_id": user.pk, "session_id": session.pk, "provider": "sheets"}
        begun = begin(**who, redirect_uri=REDIRECT, now=now)
        with pytest.raises(StateInvalid):
            complete(**who, code="c", state=begun.state, issuer=issuer, by=by, now=now)
        assert party.forms == []

    @pytest.mark.parametrize(
        "issuer", [None, "", "https://sheets.test/", "HTTPS://sheets.test", "https://other.test"]
    )
    def test_a_provider_that_is_known_to_name_itself_has_to(
        self, party: Party, settings: Any, user: User, session: Session, by: Actor, now: datetime,
        issuer: str | None,
    ) -> None:  # fmt: skip
        """RFC 9207, 2.4 (modelcontextprotocol/typescript-sdk#2344)."""
        known = party.provider(issuer="https://sheets.test", iss_required=True)
        configure(settings, sheets=known)
        who: dict[str, Any] = {"user_id": user.pk, "session_id": session.pk, "provider": "sheets"}
        begun = begin(**who, redirect_uri=REDIRECT, now=now)
        for given in (issuer, "https://sheets.test"):
            # The state is used up, so that no second guess is possible.
            with pytest.raises(StateInvalid):
                complete(**who, code="c", state=begun.state, issuer=given, by=by, now=now)
        assert party.forms == []
        begun = begin(**who, redirect_uri=REDIRECT, now=now)
        complete(**who, code="c", state=begun.state, issuer="https://sheets.test", by=by, now=now)

    @pytest.mark.parametrize("issuer", [None, "https://sheets.test"])
    def test_a_provider_that_is_not_known_to_name_itself_need_not(
        self, party: Party, settings: Any, user: User, session: Session, by: Actor, now: datetime,
        issuer: str | None,
    ) -> None:  # fmt: skip
        """Google's redirects have it undeclared (openiddict/openiddict-core#2428)."""
        configure(settings, sheets=party.provider(issuer="https://sheets.test"))
        who: dict[str, Any] = {"user_id": user.pk, "session_id": session.pk, "provider": "sheets"}
        begun = begin(**who, redirect_uri=REDIRECT, now=now)
        complete(**who, code="c", state=begun.state, issuer=issuer, by=by, now=now)

    @pytest.mark.django_db(transaction=True)
    def test_a_person_disabled_meanwhile_is_not_connected_and_the_grant_is_revoked(
        self, party: Party, user: User, session: Session, by: Actor, now: datetime
    ) -> None:
        def shut_out(form: Form) -> None:
            disable(user_id=user.pk, reason="left", by=by, now=now)
            database.close()

        party.answers = [Said(200, tokens(1).body, before=shut_out)]
        with pytest.raises(StateInvalid):
            connected(user, session, by=by, now=now)
        assert not Connection.objects.exists()
        assert ConnectionRevocation.objects.get().user_id == user.pk


class TestFresh:
    def test_a_token_that_is_good_for_a_while_is_given_as_it_is(
        self, party: Party, user: User, session: Session, by: Actor, now: datetime
    ) -> None:
        connected(user, session, by=by, now=now)
        given = asked(user, by, now + timedelta(minutes=54))
        assert given == Access(access_token="access-1", expires_at=now + timedelta(hours=1))
        assert len(party.forms) == 1
        assert "access-1" not in repr(given)

    def test_an_access_token_is_renewed_some_minutes_before_its_end(
        self, party: Party, user: User, session: Session, by: Actor, now: datetime
    ) -> None:
        connected(user, session, by=by, now=now)
        party.answers = [tokens(2)]
        later = now + timedelta(minutes=56)
        given = asked(user, by, later)
        assert given.access_token == "access-2"
        assert given.expires_at is not None
        assert abs(given.expires_at - later - timedelta(hours=1)) < timedelta(minutes=5)
        assert party.forms[-1]["refresh_token"] == "refresh-1"
        assert tokens_of(the_only()) == ["refresh-2", "access-2"]

    def test_a_life_of_a_second_is_no_endless_loop(
        self, party: Party, connection: Connection, user: User, by: Actor, now: datetime
    ) -> None:
        party.answers = [
            Said(200, tokens(2, expires_in=1).body, before=lambda _: time.sleep(1.1)),
            tokens(3),
        ]
        assert asked(user, by, now).access_token == "access-2"

    def test_a_token_that_the_third_party_refuses_is_renewed_before_its_time(
        self, party: Party, user: User, session: Session, by: Actor, now: datetime
    ) -> None:
        connected(user, session, by=by, now=now)
        party.answers = [tokens(2)]
        assert asked(user, by, now, "access-1").access_token == "access-1"
        later = now + timedelta(seconds=31)
        assert asked(user, by, later, "an older one").access_token == "access-1"
        assert asked(user, by, later, "access-1").access_token == "access-2"
        assert asked(user, by, later, "access-1").access_token == "access-2"

    def test_a_grant_without_a_refresh_token_needs_the_person_once_it_has_ended(
        self, party: Party, user: User, session: Session, by: Actor, now: datetime
    ) -> None:
        party.answers = [says(access_token="a", expires_in=3600)]
        connected(user, session, by=by, now=now)
        assert asked(user, by, now + timedelta(minutes=58)).access_token == "a"
        for _ in range(2):
            with pytest.raises(ReauthorisationNeeded):
                asked(user, by, now + HOURS_2)
        assert the_only().lapse == Connection.Lapse.EXPIRED
        assert AuditEvent.objects.filter(action="connection:reauthorisation_needed").count() == 1

    def test_a_token_without_an_end_is_given_for_ever(
        self, party: Party, user: User, session: Session, by: Actor, now: datetime
    ) -> None:
        party.answers = [says(access_token="a")]
        connected(user, session, by=by, now=now)
        later = now + timedelta(days=900)
        assert asked(user, by, later) == Access(access_token="a", expires_at=None)

    def test_tokens_whose_key_is_gone_need_the_person_until_the_key_is_back(
        self, party: Party, user: User, session: Session, by: Actor, now: datetime, settings: Any
    ) -> None:
        connected(user, session, by=by, now=now)
        before = settings.ENCRYPTION_KEYS

        class Keys:
            def listed(self) -> list[str]:
                return [Fernet.generate_key().decode()]

        settings.ENCRYPTION_KEYS = Keys()
        with pytest.raises(ReauthorisationNeeded):
            asked(user, by, now)
        settings.ENCRYPTION_KEYS = before
        assert asked(user, by, now).access_token == "access-1"

    @pytest.mark.parametrize("odd", ["a\0b", "\ud800"])
    def test_a_scope_that_cannot_be_kept_costs_no_tokens(
        self, party: Party, user: User, session: Session, by: Actor, now: datetime, odd: str
    ) -> None:
        party.answers = [tokens(1, scope=f"{odd} x")]
        assert connected(user, session, by=by, now=now - HOURS_2).scopes == ["x"]
        party.answers = [tokens(2, scope=f"{odd} y")]
        assert asked(user, by, now).access_token == "access-2"
        assert (tokens_of(the_only()), the_only().scopes) == (["refresh-2", "access-2"], ["y"])


class TestFailing:
    def test_a_provider_that_fails_leaves_the_grant_and_is_left_alone_for_a_moment(
        self, party: Party, connection: Connection, user: User, by: Actor, now: datetime
    ) -> None:
        party.answers = [says(503, {"Retry-After": "20"})]
        for _ in range(3):
            with pytest.raises(ProviderUnavailable) as raised:
                asked(user, by, now)
            again = the_only().ask_again_at
            # Told from the moment of the failure, which is a little later than this test's.
            assert again is not None
            assert again > now + timedelta(seconds=20)
            assert (
                0 < int(raised.value.headers["Retry-After"]) <= ceil((again - now).total_seconds())
            )
        assert len(party.forms) == 2
        failing = the_only()
        assert failing.state(at=now) == "unavailable"
        assert tokens_of(failing) == ["refresh-1", "access-1"]
        assert failing.leased_until is None
        party.answers = [tokens(2)]
        assert asked(user, by, again).access_token == "access-2"
        assert the_only().state(at=now) == "healthy"

    def test_the_moment_begins_when_a_slow_provider_has_failed(
        self, party: Party, connection: Connection, user: User, by: Actor, now: datetime
    ) -> None:
        party.answers = [Said(503, headers={"Retry-After": "20"}, before=lambda _: time.sleep(2))]
        with pytest.raises(ProviderUnavailable):
            asked(user, by, now)
        again = the_only().ask_again_at
        assert again is not None
        assert again >= now + timedelta(seconds=22)

    def test_a_token_that_still_works_is_given_while_the_provider_is_away(
        self, party: Party, user: User, session: Session, by: Actor, now: datetime
    ) -> None:
        connected(user, session, by=by, now=now)
        party.answers = [says(500)]
        assert asked(user, by, now + timedelta(minutes=57)).access_token == "access-1"
        assert the_only().failure == "failed"

    def test_a_refused_grant_is_marked_and_kept(
        self, party: Party, connection: Connection, user: User, by: Actor, now: datetime
    ) -> None:
        party.answers = [says(400, error="invalid_grant")]
        for _ in range(2):
            with pytest.raises(ReauthorisationNeeded):
                asked(user, by, now)
        assert len(party.forms) == 2
        lapsed = the_only()
        assert (lapsed.lapse, lapsed.state(at=now)) == ("refused", "reauthorisation_needed")
        event = AuditEvent.objects.get(action="connection:reauthorisation_needed")
        assert event.after == {"provider": "sheets", "why": "refused"}

    def test_a_refusal_after_a_lost_answer_is_marked_as_such(
        self, party: Party, connection: Connection, user: User, by: Actor, now: datetime
    ) -> None:
        party.answers = [Said(200, b"{", {"Content-Length": "500"})]
        with pytest.raises(ProviderUnavailable):
            asked(user, by, now)
        party.answers = [says(400, error="invalid_grant")]
        with pytest.raises(ReauthorisationNeeded):
            asked(user, by, now + timedelta(minutes=1))
        assert the_only().lapse == Connection.Lapse.ANSWER_LOST


@pytest.mark.django_db(transaction=True)
class TestAtOnce:
    def test_concurrent_callers_share_the_token_of_one_refresh(
        self, party: Party, connection: Connection, user: User, by: Actor, now: datetime,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:  # fmt: skip
        monkeypatch.setattr(grants, "PATIENCE", timedelta(minutes=1))
        party.answers = [Said(200, tokens(2).body, before=lambda _: time.sleep(0.3)), tokens(3)]
        before = len(party.forms)
        runners: list[Callable[[], Access]] = [lambda: asked(user, by, now)] * 8
        results = race(*runners)
        assert {getattr(each, "access_token", each) for each in results} == {"access-2"}
        assert len(party.forms) == before + 1

    def test_a_caller_who_waits_too_long_gets_retry_after(
        self, party: Party, connection: Connection, user: User, by: Actor, now: datetime,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:  # fmt: skip
        monkeypatch.setattr(grants, "PATIENCE", timedelta(seconds=0.2))
        assert refreshing.take(connection) is not None
        with pytest.raises(RefreshUnderWay) as raised:
            asked(user, by, now)
        assert raised.value.headers["Retry-After"]
        assert len(party.forms) == 1

    def test_a_lease_ends_by_itself_and_its_holder_is_then_nobody(
        self, party: Party, connection: Connection, user: User, by: Actor, now: datetime
    ) -> None:
        """The one who was away for long comes back with a refusal, because another was quicker."""
        late = refreshing.take(connection)
        assert late is not None
        Connection.objects.update(leased_until=now - HOURS_2)
        party.answers = [tokens(2), says(400, error="invalid_grant")]
        assert asked(user, by, now).access_token == "access-2"
        assert not refreshing.refresh(late, provider=find("sheets"), by=by, now=now)
        assert asked(user, by, now).access_token == "access-2"
        assert the_only().lapsed_at is None

    def test_a_late_success_changes_nothing_and_revokes_nothing(
        self, party: Party, connection: Connection, user: User, by: Actor, now: datetime
    ) -> None:
        late = refreshing.take(connection)
        assert late is not None
        Connection.objects.update(leased_until=now - HOURS_2)
        party.answers = [tokens(2), tokens(3)]
        asked(user, by, now)
        assert not refreshing.refresh(late, provider=find("sheets"), by=by, now=now)
        assert tokens_of(the_only()) == ["refresh-2", "access-2"]
        assert not ConnectionRevocation.objects.exists()

    def test_a_late_success_heals_what_its_own_refresh_made_the_other_believe(
        self, party: Party, connection: Connection, user: User, by: Actor, now: datetime
    ) -> None:
        """The provider has rotated for the late one, and so refuses the other: the late tokens are the good ones."""
        late = refreshing.take(connection)
        assert late is not None
        Connection.objects.update(leased_until=now - HOURS_2)
        party.answers = [says(400, error="invalid_grant"), tokens(3)]
        with pytest.raises(ReauthorisationNeeded):
            asked(user, by, now)
        assert refreshing.refresh(late, provider=find("sheets"), by=by, now=now)
        assert asked(user, by, now).access_token == "access-3"

    def test_a_refusal_marks_nothing_while_another_asks(
        self, party: Party, connection: Connection, by: Actor, now: datetime
    ) -> None:
        late = refreshing.take(connection)
        assert late is not None
        Connection.objects.update(leased_until=now - HOURS_2)
        assert refreshing.take(connection) is not None
        party.answers = [says(400, error="invalid_grant")]
        assert not refreshing.refresh(late, provider=find("sheets"), by=by, now=now)
        assert the_only().lapsed_at is None
        assert the_only().leased_until is not None

    def test_tokens_that_come_after_disconnecting_are_revoked(
        self, party: Party, connection: Connection, user: User, by: Actor, now: datetime
    ) -> None:
        lease = refreshing.take(connection)
        assert lease is not None
        disconnect(user_id=user.pk, provider="sheets", by=by, now=now)
        party.answers = [tokens(2)]
        assert not refreshing.refresh(lease, provider=find("sheets"), by=by, now=now)
        assert ConnectionRevocation.objects.count() == 2
        assert not Connection.objects.exists()

    def test_a_refresh_of_the_grant_before_does_not_touch_the_new_one(
        self, party: Party, connection: Connection, user: User, session: Session, by: Actor,
        now: datetime,
    ) -> None:  # fmt: skip
        lease = refreshing.take(connection)
        assert lease is not None
        party.answers = [tokens(2), says(400, error="invalid_grant")]
        connected(user, session, by=by, now=now)
        assert not refreshing.refresh(lease, provider=find("sheets"), by=by, now=now)
        assert asked(user, by, now).access_token == "access-2"

    def test_no_lock_or_transaction_is_open_while_the_provider_is_asked(
        self, party: Party, connection: Connection, user: User, by: Actor, now: datetime
    ) -> None:
        reached, done = Event(), Event()

        def wait(form: Form) -> None:
            reached.set()
            done.wait(30)

        party.answers = [Said(200, tokens(2).body, before=wait)]
        thread = Thread(target=lambda: (asked(user, by, now), database.close()))
        thread.start()
        assert reached.wait(30)
        with database.cursor() as cursor:
            cursor.execute("SET lock_timeout = '2s'")
            Connection.objects.update(fence=F("fence"))
            cursor.execute("RESET lock_timeout")
        done.set()
        thread.join()
        assert tokens_of(the_only()) == ["refresh-2", "access-2"]

    def test_tokens_are_kept_though_the_database_is_away_for_a_moment(
        self, party: Party, connection: Connection, user: User, by: Actor, now: datetime
    ) -> None:
        """Its server ends every session of ours at the moment in which the answer is to be kept."""
        locked = Event()

        def lock() -> None:
            with database.cursor() as cursor:
                cursor.execute("BEGIN")
                cursor.execute("LOCK TABLE accounts_connection IN ACCESS EXCLUSIVE MODE")
                locked.set()
                _end_who_waits(cursor)
                cursor.execute("ROLLBACK")
            database.close()

        def begin_lock(form: Form) -> None:
            Thread(target=lock).start()
            locked.wait(30)

        party.answers = [Said(200, tokens(2).body, before=begin_lock)]
        assert asked(user, by, now).access_token == "access-2"
        assert tokens_of(the_only()) == ["refresh-2", "access-2"]


def _end_who_waits(cursor: Any) -> None:
    """Ends the session that waits for our lock, once there is one."""

    def ended() -> bool:
        cursor.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE pg_backend_pid() = ANY(pg_blocking_pids(pid))"
        )
        return bool(cursor.fetchall())

    eventually(ended)


class TestRows:
    def test_there_is_one_connection_per_person_and_provider(self, connection: Connection) -> None:
        with pytest.raises(IntegrityError, match="one_connection_per_user_and_provider"):
            Connection.objects.bulk_create([_copy(connection)])

    @pytest.mark.parametrize(
        ("change", "rule"),
        [
            ({"provider": "No word"}, "connection_provider_is_a_plain_word"),
            ({"lapse": "refused"}, "connection_lapse_has_a_reason"),
            ({"failure": "failed"}, "connection_failure_has_a_kind"),
        ],
    )
    def test_a_row_cannot_contradict_itself(
        self, connection: Connection, change: dict[str, str], rule: str
    ) -> None:
        with pytest.raises(IntegrityError, match=rule):
            Connection.objects.update(**change)


def _copy(row: Connection) -> Connection:
    row.pk = None
    return row
