"""A day of a shell, from signing in to being locked out and let in again, over real HTTP and real processes."""

from datetime import UTC, datetime
from json import loads

from accounts.sessions.revocation import revoke_all
from licensing.models import Licence
from tests.served.browser import Browser
from tests.served.database import Database
from tests.served.ledger import assert_nothing_is_reserved, the_record
from tests.served.people import BY, Person, suspend
from tests.served.service import Service
from tests.served.shell import DONE, Shell, asked, stand_in, text_of
from tests.standins.provider_process import Provider


def test_a_shell_signs_in_works_is_locked_out_and_works_again(
    service: Service, database: Database, demo: dict[str, str]
) -> None:
    shell = Shell(service.url)
    assert shell.login(demo["email"].upper(), demo["password"]).status_code == 200
    assert shell.get("/v1/auth/me").json()["email"] == demo["email"]
    status = shell.get("/v1/license/status")
    assert status.json() == {"status": "active", "plan": "Starter", "entitlements": ["notes"]}

    spent = [_answer(shell), _streamed_answer(shell)]
    _assert_usage_is(spent, shell)
    _assert_a_refresh_token_is_good_for_one_use(shell)
    shell.login(demo["email"], demo["password"])

    operator = Browser(service.url)
    operator.submit(
        "/admin/login/?next=/admin/",
        username=demo["operator_email"],
        password=demo["operator_password"],
    )
    with database.rows():
        licence = Licence.objects.get(client__users__email=demo["email"])
    page = f"/admin/licensing/licence/{licence.pk}/status/"
    known = {"If-None-Match": status.headers["ETag"]}
    assert shell.get("/v1/license/status", headers=known).status_code == 304
    operator.submit(page, status="suspended", reason="The invoice of September is open.")
    changed = shell.get("/v1/license/status", headers=known)
    assert (changed.status_code, changed.json()["status"]) == (200, "suspended")
    _assert_only_model_calls_are_refused(shell)
    _assert_usage_is(spent, shell)

    operator.submit(page, status="active", reason="It is paid.")
    assert shell.get("/v1/license/status", headers=known).status_code == 304
    _assert_usage_is([*spent, _answer(shell)], shell)
    assert shell.post("/v1/auth/logout", {"refresh": shell.refresh_token}).status_code == 204
    assert shell.get("/v1/auth/me").json()["code"] == "access_revoked"


def test_the_kill_switch_ends_calls_and_running_streams_and_a_new_login_works(
    database: Database, provider: Provider, person: Person, shell: Shell
) -> None:
    with shell.stream(stand_in("tokens=100000 delay=0.05")) as stream:
        assert "chat.completion.chunk" in stream.next_event()
        with database.rows():
            revoke_all(user_id=person.id, by=BY, reason="A laptop was lost.", now=datetime.now(UTC))
        refused = shell.get("/v1/license/status")
        assert (refused.status_code, refused.json()["code"]) == (401, "access_revoked")
        assert shell.refresh().json()["code"] == "invalid_refresh_token"
        # By itself it goes on for minutes, and ends with another word.
        *_, last = stream
    error = loads(last)["error"]
    assert (error["code"], error["status"]) == ("access_revoked", 401)
    assert error["request_id"] == stream.headers["X-Request-ID"]
    provider.wait_for(lambda stats: stats["streams_open"] == 0)
    record = the_record(database, person)
    assert (record.end, record.source) == ("stopped", "counted")
    assert record.output_tokens > 0
    assert_nothing_is_reserved(database, person)

    assert shell.login(person.email, person.password).status_code == 200
    assert shell.complete("Hello").status_code == 200


def test_a_suspension_ends_running_streams_too(
    database: Database, provider: Provider, person: Person, shell: Shell
) -> None:
    with shell.stream(stand_in("tokens=100000 delay=0.05")) as stream:
        stream.next_event()
        suspend(database, person)
        *_, last = stream
    assert loads(last)["error"]["code"] == "licence_suspended"
    provider.wait_for(lambda stats: stats["streams_open"] == 0)
    assert the_record(database, person).end == "stopped"
    # Nothing else of the person has ended.
    assert shell.get("/v1/license/status").json()["status"] == "suspended"


def _assert_usage_is(spent: list[dict[str, int]], shell: Shell) -> None:
    """Asserts that the service's usage is the provider's."""
    usage = shell.usage()
    assert usage["calls"] == len(spent)
    assert usage["input"]["used"] == sum(each["prompt_tokens"] for each in spent)
    assert usage["output"]["used"] == sum(each["completion_tokens"] for each in spent)
    assert usage["day"]["used"] == sum(each["total_tokens"] for each in spent)
    for series in ("by_day", "by_model"):
        (only,) = usage[series]
        assert (only["input"], only["output"]) == (usage["input"]["used"], usage["output"]["used"])


def _assert_a_refresh_token_is_good_for_one_use(shell: Shell) -> None:
    used = shell.refresh_token
    assert shell.refresh().status_code == 200
    assert shell.get("/v1/auth/me").status_code == 200
    refused = Shell(shell.base_url).refresh(used)
    assert (refused.status_code, refused.json()["code"]) == (401, "invalid_refresh_token")
    # Of two holders one is a thief, so the whole session is over.
    assert shell.get("/v1/auth/me").json()["code"] == "access_revoked"
    assert shell.refresh().json()["code"] == "invalid_refresh_token"


def _assert_only_model_calls_are_refused(shell: Shell) -> None:
    for path in ("complete", "stream", "chat/completions"):
        refused = shell.post(f"/v1/llm/{path}", asked("Hello"))
        assert (refused.status_code, refused.json()["code"]) == (403, "licence_suspended")
    for path in ("/v1/auth/me", "/v1/usage/me", "/v1/llm/models"):
        assert shell.get(path).status_code == 200
    assert shell.refresh().status_code == 200


def _answer(shell: Shell) -> dict[str, int]:
    """One-shot; what the provider says it cost."""
    response = shell.complete("What is a sonnet?")
    assert response.status_code == 200, response.text
    answer = response.json()
    assert "sonnet" in answer["choices"][0]["message"]["content"]
    usage: dict[str, int] = answer["usage"]
    return usage


def _streamed_answer(shell: Shell) -> dict[str, int]:
    with shell.stream("And an ode?", stream_options={"include_usage": True}) as stream:
        assert stream.status == 200
        *chunks, last, done = stream
    assert done == DONE
    assert "And an ode?" in text_of(chunks)
    usage: dict[str, int] = loads(last)["usage"]
    return usage
