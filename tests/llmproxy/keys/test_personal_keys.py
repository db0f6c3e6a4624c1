"""Personal keys and their ends: the person's access, plan, licence and client, time, and operators."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest
from django.core.management import call_command
from django.db import connection
from django.test.utils import CaptureQueriesContext
from procrastinate.contrib.django.models import ProcrastinateJob
from rest_framework.test import APIClient

from accounts.audit import Actor
from accounts.models import AuditEvent, Client, Session, User
from accounts.people.access import disable, enable
from accounts.people.clients import delete_client
from accounts.people.erasure import erase_user
from accounts.people.users import move_user, set_password
from accounts.sessions.authentication import AccessRevoked
from accounts.sessions.revocation import end_session, revoke_all, revoke_everything
from accounts.sessions.sign_in import TokenPair
from config.platform.periods import Period
from licensing.callers import Caller, load_caller
from licensing.licences import create_client, set_operator_status
from licensing.models import Licence, Plan, Standing
from llmproxy.calls import watch
from llmproxy.keys.key_text import KeyText
from llmproxy.keys.personal_keys import (
    ENDED,
    NewKey,
    TooManyKeys,
    end_key,
    holder_of,
    make_key,
    prune_keys,
)
from llmproxy.models import PersonalKey
from llmproxy.requests.chat import parse
from tests.llmproxy.calling import admit, asking
from tests.llmproxy.keys.conftest import Make, holding
from tests.races import race
from usage.models import KeyMonth, UsageRecord

MODELS, COMPLETE = "/v1/llm/models", "/v1/llm/complete"
ASK = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 50}


@pytest.fixture
def caller(keyed_plan: Plan, pair: TokenPair, user: User) -> Caller:
    caller = load_caller(user_id=user.pk, session_id=Session.objects.get().pk)
    assert caller is not None
    return caller


def make(caller: Caller, by: Actor, now: datetime, cap: int | None = None) -> NewKey:
    return make_key(
        caller=caller, name="Editor", days=30, monthly_output_tokens=cap, by=by, now=now
    )


def answer(api: APIClient) -> tuple[int, str]:
    response = api.get(MODELS)
    return response.status_code, response.json().get("code", "")


REVOKED = (401, "access_revoked")
Act = Callable[[User, Actor, datetime], object]
# Acts that end all keys of a person permanently.
ENDS: dict[str, Act] = {
    "revoked": lambda user, by, now: revoke_all(user_id=user.pk, by=by, reason="x", now=now),
    "everybody revoked": lambda user, by, now: revoke_everything(by=by, reason="x", now=now),
    "a new password": lambda user, by, now: set_password(
        user_id=user.pk, password="a wholly other passphrase", by=by, now=now
    ),
    "disabled": lambda user, by, now: disable(user_id=user.pk, reason="x", by=by, now=now),
    "disabled and enabled": lambda user, by, now: (
        disable(user_id=user.pk, reason="x", by=by, now=now),
        enable(user_id=user.pk, reason="x", by=by, now=now),
    ),
    "moved": lambda user, by, now: move_user(
        user_id=user.pk,
        client=create_client(name="Other", plan=Plan.objects.get(), by=by, now=now),
        reason="x",
        by=by,
        now=now,
    ),
}


@pytest.mark.django_db
class TestWhatEndsIt:
    @pytest.mark.parametrize("how", ENDS)
    def test_a_key_ends_with_its_persons_access(
        self, how: str, by_key: APIClient, user: User, by: Actor, now: datetime
    ) -> None:
        assert answer(by_key)[0] == 200
        ENDS[how](user, by, now)
        assert answer(by_key) == REVOKED
        assert not PersonalKey.objects.live(at=now).exists()

    def test_the_end_of_one_session_is_not_its_end(
        self, by_key: APIClient, by: Actor, now: datetime
    ) -> None:
        session = Session.objects.get()
        end_session(session=session, why=Session.Ended.LOGOUT, by=by, now=now)
        assert answer(by_key)[0] == 200

    def test_a_key_ends_after_its_days(self, by_key: APIClient, now: datetime) -> None:
        past = now - timedelta(days=2)
        PersonalKey.objects.update(created_at=past, expires_at=past + timedelta(days=1))
        assert answer(by_key) == REVOKED

    def test_a_key_can_be_ended_by_an_operator(
        self, by_key: APIClient, by: Actor, now: datetime
    ) -> None:
        assert end_key(key=PersonalKey.objects.get(), by=by, now=now, reason="Found in a log.")
        assert not end_key(key=PersonalKey.objects.get(), by=by, now=now, reason="Again.")
        assert answer(by_key) == REVOKED
        event = AuditEvent.objects.get(action="personal_key:ended")
        assert (event.reason, event.actor) == ("Found in a log.", by.name)

    def test_a_key_is_refused_while_the_plan_has_no_keys(self, by_key: APIClient) -> None:
        Plan.objects.update(allows_keys=False)
        assert answer(by_key) == (403, "not_entitled")
        assert by_key.post(COMPLETE, ASK, format="json").json()["code"] == "not_entitled"
        Plan.objects.update(allows_keys=True)
        assert answer(by_key)[0] == 200

    def test_a_key_is_refused_while_the_licence_is_suspended(
        self, by_key: APIClient, by: Actor, now: datetime
    ) -> None:
        licence = Licence.objects.get()
        set_operator_status(
            licence_id=licence.pk, status=Standing.SUSPENDED, reason="unpaid", by=by, now=now
        )
        response = by_key.post(COMPLETE, ASK, format="json")
        assert (response.status_code, response.json()["code"]) == (403, "licence_suspended")
        assert not UsageRecord.objects.exists()

    def test_a_key_is_deleted_with_its_person(
        self, by_key: APIClient, user: User, by: Actor, now: datetime
    ) -> None:
        removed = erase_user(user_id=user.pk, email=user.email, reason="Asked.", by=by, now=now)
        assert removed["personal keys"] == 1
        assert not PersonalKey.objects.exists()
        assert answer(by_key) == (401, "invalid_access_token")

    def test_a_key_is_deleted_with_its_client(
        self, by_key: APIClient, user: User, organisation: Client, by: Actor, now: datetime
    ) -> None:
        move_user(user_id=user.pk, client=None, reason="x", by=by, now=now)
        delete_client(client_id=organisation.pk, reason="x", by=by, now=now)
        assert answer(by_key) == REVOKED

    def test_none_is_made_for_an_access_that_ends_at_the_moment(
        self, caller: Caller, user: User, by: Actor, now: datetime
    ) -> None:
        revoke_all(user_id=user.pk, by=by, reason="x", now=now)
        with pytest.raises(AccessRevoked):
            make(caller, by, now)
        assert not PersonalKey.objects.exists()


@pytest.mark.django_db
class TestItsCalls:
    def test_its_holder_is_found_in_one_query(self, made: Make, now: datetime) -> None:
        text = KeyText.parse(made())
        assert text is not None
        holder_of(text, now=now)
        with CaptureQueriesContext(connection) as queries:
            assert holder_of(text, now=now) is not None
        assert len(queries) == 1

    def test_its_last_use_is_written_once_a_minute(
        self, made: Make, now: datetime, signed_in: APIClient
    ) -> None:
        text = KeyText.parse(made())
        assert text is not None
        for seconds, writes in ((0, 1), (30, 0), (59, 0), (60, 1), (61, 0)):
            with CaptureQueriesContext(connection) as queries:
                holder_of(text, now=now + timedelta(seconds=seconds))
            assert len(queries) == 1 + writes, seconds
        (listed,) = signed_in.get("/v1/keys").json()["keys"]
        used = datetime.fromisoformat(listed["last_used_at"])
        assert used == now + timedelta(seconds=60)

    def test_a_refused_key_is_not_used(self, made: Make, now: datetime) -> None:
        text = KeyText.parse(made())
        assert text is not None
        User.objects.update(is_active=False)
        holder_of(text, now=now)
        assert PersonalKey.objects.get().last_used_at is None

    def test_the_record_names_it_and_no_session(
        self, made: Make, user: User, now: datetime
    ) -> None:
        text = KeyText.parse(made(monthly_output_tokens=1_000))
        assert text is not None
        found = holder_of(text, now=now)
        assert found is not None
        call = admit(caller=found[0], request=parse(ASK, stream=False), request_id="r", now=now)
        key, record = PersonalKey.objects.get(), UsageRecord.objects.get()
        assert (record.key_id, record.session_id, record.user_id) == (key.pk, None, user.pk)
        assert KeyMonth.objects.get().output_reserved == 50
        assert call.remaining(now=now)["X-Tokens-Remaining-Month"] == "1000"
        call.settle(UsageRecord.End.PROVIDER_FAILED)
        assert KeyMonth.objects.get().output_reserved == 0

    def test_its_calls_count_under_its_persons_rate_limit(
        self, made: Make, signed_in: APIClient, settings
    ) -> None:
        settings.RATE_LIMITS = {"llm.user": "2/d"}
        wrong = {"messages": []}
        by_key, other = holding(made()), holding(made())
        codes = [
            each.post(COMPLETE, wrong, format="json").json()["code"]
            for each in (by_key, signed_in, other)
        ]
        assert codes == ["invalid_request", "invalid_request", "rate_limited"]


@pytest.mark.django_db
class TestRunningCalls:
    @pytest.mark.parametrize(
        ("how", "code"),
        [
            ("nothing", None),
            ("ended", "access_revoked"),
            ("expired", "access_revoked"),
            ("erased", "access_revoked"),
            ("session", None),
            ("epoch", "access_revoked"),
            ("disabled", "access_revoked"),
            ("plan", "not_entitled"),
            ("suspended", "licence_suspended"),
        ],
    )
    def test_running_calls_end_with_their_key(
        self, how: str, code: str | None, made: Make, now: datetime
    ) -> None:
        text = KeyText.parse(made())
        assert text is not None
        found = holder_of(text, now=now)
        assert found is not None
        call = admit(caller=found[0], request=parse(ASK, stream=False), request_id="r", now=now)
        end = {
            "ended": lambda: PersonalKey.objects.update(ended_at=now),
            "expired": lambda: PersonalKey.objects.update(
                created_at=datetime(2026, 1, 1, tzinfo=UTC),
                expires_at=datetime(2026, 2, 1, tzinfo=UTC),
            ),
            "erased": lambda: PersonalKey.objects.all().delete(),
            "session": lambda: Session.objects.update(ended_at=now, ended_by="logout"),
            "epoch": lambda: User.objects.update(epoch=7),
            "disabled": lambda: User.objects.update(is_active=False),
            "plan": lambda: Plan.objects.update(allows_keys=False),
            "suspended": lambda: Licence.objects.update(
                operator_status=Standing.SUSPENDED, operator_reason="unpaid"
            ),
        }.get(how)
        if end is not None:
            end()
        asking(call)
        watch._calls[call.id] = watch._WatchedCall(call)
        with CaptureQueriesContext(connection) as queries:
            watch.end_refused()
        exchange, problem = call.attempt.exchange, call.stop.problem
        assert exchange.closed == (code is not None)
        del watch._calls[call.id]
        assert len(queries) == 2
        assert (problem.code if problem else None) == code
        if problem and code == "access_revoked":
            # As its next call is told; signing in again makes no key.
            assert problem.detail == ENDED


@pytest.mark.django_db(transaction=True)
class TestRaces:
    def test_no_more_than_ten_are_made_at_once(
        self, caller: Caller, by: Actor, now: datetime
    ) -> None:
        for _ in range(4):
            make(caller, by, now)
        results = race(*[partial(make, caller, by, now)] * 12)
        assert (
            sorted(type(each).__name__ for each in results)
            == ["NewKey"] * 6 + [TooManyKeys.__name__] * 6
        )
        assert PersonalKey.objects.live(at=now).count() == 10

    def test_none_outlives_a_revocation_at_the_same_moment(
        self, caller: Caller, user: User, by: Actor, now: datetime
    ) -> None:
        revoke = partial(revoke_all, user_id=user.pk, by=by, reason="x", now=now)
        makes = [partial(make, caller, by, now)] * 6
        race(*makes[:3], revoke, *makes[3:])  # type: ignore[arg-type]
        assert not PersonalKey.objects.live(at=now).exists()

    def test_one_is_ended_once_by_many(self, caller: Caller, by: Actor, now: datetime) -> None:
        key = make(caller, by, now).row
        results = race(*[partial(end_key, key=key, by=by, now=now)] * 6)
        assert sorted(results) == [False] * 5 + [True]  # type: ignore[type-var]
        assert AuditEvent.objects.filter(action="personal_key:ended").count() == 1


def test_keys_that_have_been_over_for_thirty_days_are_pruned_and_their_usage_stays(
    caller: Caller, by: Actor, now: datetime, capsys: pytest.CaptureFixture[str]
) -> None:
    expired, ended, live = (make(caller, by, now) for _ in range(3))
    PersonalKey.objects.filter(pk=live.row.pk).update(expires_at=now + timedelta(days=90))
    text = KeyText.parse(ended.text)
    assert text is not None
    found = holder_of(text, now=now)
    assert found is not None
    call = admit(caller=found[0], request=parse(ASK, stream=False), request_id="r", now=now)
    end_key(key=ended.row, by=by, now=now)
    left = set(AuditEvent.objects.values_list("pk", flat=True))

    def keys() -> set[NewKey]:
        there = set(PersonalKey.objects.values_list("pk", flat=True))
        return {each for each in (expired, ended, live) if each.row.pk in there}

    assert prune_keys(now=now + timedelta(days=30)) == 0
    later = now + timedelta(days=30, seconds=1)
    assert prune_keys(now=later, dry_run=True) == 1
    assert prune_keys(now=later) == 1
    assert keys() == {expired, live}
    assert prune_keys(now=now + timedelta(days=60, seconds=1)) == 1
    assert keys() == {live}
    assert UsageRecord.objects.get(pk=call.id).key_id == ended.row.pk
    assert left <= set(AuditEvent.objects.values_list("pk", flat=True))
    call_command("prune_personal_keys")
    assert "0 personal keys that ended 30 days ago removed" in capsys.readouterr().out


@pytest.mark.django_db
def test_twenty_are_made_a_day_however_many_have_ended(
    caller: Caller, by: Actor, now: datetime
) -> None:
    midnight = Period.of(now).next_day
    for minutes in range(20):
        at = midnight + timedelta(minutes=minutes)
        end_key(key=make(caller, by, at).row, by=by, now=at)
    with pytest.raises(TooManyKeys, match="too_many_keys") as refusal:
        make(caller, by, midnight + timedelta(hours=23, minutes=59))
    assert "20 personal keys today" in refusal.value.detail
    make(caller, by, midnight + timedelta(days=1))


@pytest.mark.django_db
def test_one_mail_an_hour_tells_of_them(caller: Caller, by: Actor, now: datetime) -> None:
    for minutes in (0, 10, 59, 60, 61, 121, 250):
        at = now + timedelta(minutes=minutes)
        end_key(key=make(caller, by, at).row, by=by, now=at)
    jobs = ProcrastinateJob.objects.filter(task_name="mail.send").order_by("pk")
    # The first and the last are sent at once.
    due = [job.scheduled_at and (job.scheduled_at - now) / timedelta(minutes=1) for job in jobs]
    assert due == [None, 60, 120, 180, None]
    assert ["More personal keys may" in job.args["text"] for job in jobs] == [
        each is not None for each in due
    ]


def test_a_key_that_was_pruned_is_refused(caller: Caller, by: Actor, now: datetime) -> None:
    made = make(caller, by, now)
    assert prune_keys(now=now + timedelta(days=61)) == 1
    assert answer(holding(made.text)) == (401, "invalid_access_token")
