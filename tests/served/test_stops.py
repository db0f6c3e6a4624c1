"""Operators stop model calls, and what a refused or stopped caller is told, over real HTTP to two processes."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from json import loads
from typing import Any

import openai
import pytest

from config.platform.periods import Period
from tests.served.conftest import SignIn
from tests.served.database import Database
from tests.served.ledger import assert_nothing_is_reserved, records_of
from tests.served.people import BY, Person, add_person
from tests.served.service import Service
from tests.served.shell import DONE, PATIENCE, stand_in
from tests.standins.provider_process import Provider
from usage.models import RunningCall
from usage.stops import end_call, restart_model_calls, stop_model_calls

# By itself it takes longer than a shell waits for it.
LONG = stand_in("tokens=100000 delay=0.02")


def stop(database: Database, person: Person) -> int:
    with database.rows():
        now = datetime.now(UTC)
        return stop_model_calls(user_id=person.id, reason="Test.", ends_at=None, by=BY, now=now)


def restart(database: Database, person: Person) -> bool:
    with database.rows():
        return restart_model_calls(user_id=person.id, reason="Test.", by=BY, now=datetime.now(UTC))


def error_of(stream: Any) -> dict[str, Any]:
    """The typed event that ends a stream in place of ``[DONE]``."""
    *_, last = [data for data in stream if data != ":"]
    assert last != DONE
    error: dict[str, Any] = loads(last)["error"]
    return error


def test_stopping_a_person_ends_what_runs_and_refuses_the_rest_until_restarted(
    service: Service, database: Database, provider: Provider, person: Person, sign_in: SignIn
) -> None:
    shell = sign_in(service, person)
    with ThreadPoolExecutor(1) as pool, shell.stream(LONG, max_tokens=4_000) as stream:
        waiting = pool.submit(shell.complete, LONG, max_tokens=4_000)
        stream.next_event()
        provider.wait_for(lambda stats: stats["requests_open"] == 2)
        assert stop(database, person) == 2
        error = error_of(stream)
        whole = waiting.result(PATIENCE)
    assert (error["code"], error["status"], error["type"]) == (
        "model_calls_stopped",
        403,
        "permission_error",
    )
    assert (whole.status_code, whole.json()["code"]) == (403, "model_calls_stopped")
    assert {record.end for record in records_of(database, person)} == {"stopped"}
    assert_nothing_is_reserved(database, person)
    provider.wait_for(lambda stats: stats["requests_open"] == 0)

    asked_before = provider.stats()["requests"]
    for path in ("complete", "stream", "chat/completions"):
        refused = shell.post(f"/v1/llm/{path}", {"messages": [{"role": "user", "content": "Hi"}]})
        assert refused.status_code == 403
        assert refused.json()["code"] == refused.json()["error"]["code"] == "model_calls_stopped"
        assert "X-Tokens-Remaining-Month" not in refused.headers
    assert provider.stats()["requests"] == asked_before
    assert len(records_of(database, person)) == 2
    assert shell.get("/v1/llm/models").status_code == 200
    assert shell.usage()["calls"] == 2

    assert restart(database, person)
    assert shell.complete("Hello").status_code == 200


def test_one_call_is_ended_and_the_others_go_on(
    service: Service, database: Database, person: Person, sign_in: SignIn
) -> None:
    shell = sign_in(service, person)
    with (
        shell.stream(LONG, max_tokens=4_000) as first,
        shell.stream(stand_in("tokens=300 delay=0.02"), max_tokens=400) as second,
    ):
        first.next_event()
        second.next_event()
        long = next(each for each in records_of(database, person) if each.reserved_output > 400)
        with database.rows():
            # The row that operators see while the call runs.
            seen = RunningCall.objects.get(pk=long.pk)
            assert seen.told_to_end_at is None
            assert end_call(record_id=long.pk, reason="Loops.", by=BY, now=datetime.now(UTC))
        assert error_of(first)["code"] == "model_calls_stopped"
        assert list(second)[-1] == DONE
    ends = {record.pk: record.end for record in records_of(database, person)}
    assert ends.pop(long.pk) == "stopped"
    assert list(ends.values()) == ["done"]
    assert shell.complete("Hello").status_code == 200


def test_an_openai_client_gives_up_at_once_where_calls_are_stopped(
    service: Service, database: Database, provider: Provider, person: Person, sign_in: SignIn
) -> None:
    shell = sign_in(service, person)
    stop(database, person)
    client = openai.OpenAI(base_url=f"{service.url}/v1/llm", api_key=shell.access, max_retries=2)
    with client, pytest.raises(openai.PermissionDeniedError) as refused:
        client.chat.completions.create(
            model="stand-in-small", messages=[{"role": "user", "content": "Hi"}]
        )
    assert refused.value.code == "model_calls_stopped"
    assert provider.stats()["requests"] == 0


@pytest.mark.parametrize(
    ("caps", "code", "resets", "left"),
    [
        ({"monthly_input": 5}, "monthly_cap_exceeded", "month", ("5", "unlimited")),
        ({"monthly_output": 10}, "monthly_cap_exceeded", "month", ("10", "unlimited")),
        ({"daily": 12}, "daily_limit_reached", "day", ("unlimited", "12")),
        (
            {"monthly_input": 10**6, "monthly_output": 0},
            "monthly_cap_exceeded",
            "month",
            ("0", "66666"),
        ),
    ],
)
def test_a_refusal_by_a_cap_says_everything_a_client_needs(
    service: Service,
    database: Database,
    provider: Provider,
    sign_in: SignIn,
    caps: dict[str, int],
    code: str,
    resets: str,
    left: tuple[str, str],
) -> None:
    person = add_person(database, caps)
    shell = sign_in(service, person)
    for path in ("complete", "stream", "chat/completions"):
        asked_at = datetime.now(UTC)
        refused = shell.post(f"/v1/llm/{path}", {"messages": [{"role": "user", "content": "Hi"}]})
        problem, headers = refused.json(), refused.headers
        assert (refused.status_code, problem["code"]) == (429, code)
        period = Period.of(datetime.now(UTC))
        until = period.next_month if resets == "month" else period.next_day
        assert problem["retry_after_iso"] == f"{until:%Y-%m-%dT%H:%M:%SZ}"
        least, most = ((until - at).total_seconds() for at in (datetime.now(UTC), asked_at))
        assert headers["Retry-After"].isdecimal()
        assert least - 1 <= int(headers["Retry-After"]) <= most + 1
        assert headers["x-should-retry"] == "false"
        assert problem["error"]["code"] == problem["error"]["type"] == "insufficient_quota"
        assert problem["error"]["message"] == problem["detail"]
        assert (headers["X-Tokens-Remaining-Month"], headers["X-Tokens-Remaining-Day"]) == left
        assert {"cap", "used", "reserved", "requested", "remaining"} <= problem.keys()
        assert str(problem["remaining"]) in left
        assert ("dimension" in problem) == (resets == "month")
    assert records_of(database, person) == []
    assert provider.stats()["requests"] == 0
    usage = shell.usage()
    assert (usage["input"]["used"], usage["output"]["in_flight"], usage["calls"]) == (0, 0, 0)


def test_a_failure_of_the_provider_says_what_is_left_too(
    service: Service, database: Database, sign_in: SignIn
) -> None:
    person = add_person(database, {"monthly_output": 1_000, "daily": 10_000})
    shell = sign_in(service, person)
    for call in ("complete", "stream"):
        failed = shell.post(
            f"/v1/llm/{call}",
            {
                "messages": [{"role": "user", "content": stand_in("fault=status:500")}],
                "max_tokens": 100,
            },
        )
        assert failed.status_code == 502
        # Nothing is charged, and what was reserved is given back.
        assert failed.headers["X-Tokens-Remaining-Month"] == "1000"
        assert failed.headers["X-Tokens-Remaining-Day"] == "10000"
    assert_nothing_is_reserved(database, person)
