import json
import logging
import sys
import threading
import warnings
from typing import Any
from uuid import UUID, uuid4

import procrastinate
import psycopg
import pytest
from django.conf import settings
from django.db import IntegrityError, connection
from procrastinate.testing import InMemoryConnector

from config.platform.observability import logs
from config.platform.observability.logs import ALLOWED, AllowListFormatter
from tests.platform.written import Written, service_handler

# Secrets that must never be written, in the forms that they take here.
REFRESH = "q7Zr1xYw0KcT3vB9nM5sLdE8hJ2fGaUoPiXeWtRzS4k"
JWT = "eyJhbGciOiJSUzI1NiIsImtpZCI6IjEifQ.eyJzdWIiOiI0MiIsImNpZCI6IjcifQ.c2lnbmF0dXJlLWJ5dGVzLWhlcmU0Mg"
PASSWORD = "correct horse battery staple"
PROMPT = "Summarise the layoff plan\nfor Mr. Canary"
SECRETS = (REFRESH, JWT, PASSWORD, PROMPT, "layoff")

ours = logging.getLogger("accounts.sessions.sign_in")


def line_of(written: Written) -> dict[str, Any]:
    (line,) = written.lines()
    return line


def assert_no_secret(written: Written) -> None:
    text = written.getvalue()
    assert text
    assert not [secret for secret in SECRETS if secret in text or json.dumps(secret)[1:-1] in text]


def test_a_record_is_one_line_of_json_with_its_time_in_utc(written: Written) -> None:
    ours.warning("session_ended", extra={"count": 3})
    line = line_of(written)
    assert list(line)[:4] == ["time", "level", "logger", "event"]
    assert (line["level"], line["logger"], line["event"], line["count"]) == (
        "warning",
        "accounts.sessions.sign_in",
        "session_ended",
        3,
    )
    assert len(line["time"]) == len("2026-11-20T12:00:00.000Z")
    assert line["time"].endswith("Z")


def test_several_lines_of_text_stay_one_line(written: Written) -> None:
    ours.info("first\nsecond\u2028third\r")
    assert written.getvalue().count("\n") == 1
    assert line_of(written)["event"] == "first\nsecond\u2028third\r"


def test_numbers_of_own_code_are_filled_in(written: Written) -> None:
    ours.info("%d settled in %.1f s", 3, 0.25)
    assert line_of(written)["event"] == "3 settled in 0.2 s"


@pytest.mark.parametrize("secret", SECRETS)
def test_texts_are_not_filled_in(written: Written, secret: str) -> None:
    ours.info("signed in %s", secret)
    ours.info("%s of %d", secret, 4)
    ours.info("%(password)s", {"password": secret})
    assert [line["event"] for line in written.lines()] == [
        "signed in %s",
        "%s of %d",
        "%(password)s",
    ]
    assert_no_secret(written)


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize(
    "logger", ["accounts.sessions.sign_in", "gunicorn.error", "asyncio", "urllib3.connectionpool"]
)
def test_assembled_text_is_not_written_whichever_library_logs_it(
    written: Written, logger: str, secret: str
) -> None:
    logging.getLogger(logger).warning(f"could not use {secret}")  # noqa: G004 - that is the point
    logging.getLogger(logger).warning("could not use " + secret)  # noqa: G003
    logging.getLogger(logger).warning(ValueError(secret))
    assert_no_secret(written)
    assert {line["event"] for line in written.lines()} == {
        f"tests/platform/observability/test_logs.py:{here()}"
    }


def here() -> str:
    return sys._getframe(1).f_code.co_name


def test_literals_of_libraries_are_written(written: Written) -> None:
    logging.getLogger("gunicorn.error").info("Booting worker with pid: %s", 42)
    logging.getLogger("gunicorn.error").info("Worker reloading: %s modified", PASSWORD)
    assert [line["event"] for line in written.lines()][1] == "Worker reloading: %s modified"
    assert_no_secret(written)


def test_gunicorn_names_its_processes_and_the_signals_that_they_got(written: Written) -> None:
    gunicorn = logging.getLogger("gunicorn.error")
    gunicorn.warning("Worker (pid:%s) was sent %s!", 42, "SIGSEGV")
    gunicorn.info("Handling signal: %s", "term")
    gunicorn.error("Error handling request %s %s", "GET", f"/reset/{REFRESH}")
    gunicorn.error("Error handling request %s", JWT)
    assert [line["event"] for line in written.lines()] == [
        "Worker (pid:42) was sent SIGSEGV!",
        "Handling signal: term",
        "Error handling request %s %s",
        "Error handling request %s",
    ]
    assert_no_secret(written)


def test_literals_passed_through_a_wrapper_are_written(written: Written) -> None:
    def wrapper(message: str) -> None:
        ours.info(message)

    wrapper("autorestarting")
    assert line_of(written)["event"] == "autorestarting"


def test_only_allowed_names_are_written(written: Written) -> None:
    ours.info(
        "asked",
        extra={"prompt": PROMPT, "token": JWT, "body": {"password": PASSWORD}, "status": 200},
    )
    assert set(line_of(written)) - {"request_id"} == {"time", "level", "logger", "event", "status"}
    assert_no_secret(written)


@pytest.mark.parametrize("secret", [REFRESH, JWT, PASSWORD, PROMPT])
def test_a_secret_under_an_allowed_name_is_not_written(written: Written, secret: str) -> None:
    ours.info("asked", extra=dict.fromkeys(ALLOWED, secret))
    line = line_of(written)
    assert {line[name] for name in ALLOWED} == {"?"}
    assert_no_secret(written)


@pytest.mark.parametrize(
    "value", [{"a": PROMPT}, [PROMPT], PROMPT.encode(), object(), float("nan"), 10**400]
)
def test_only_short_scalars_are_written(written: Written, value: object) -> None:
    ours.info(
        "asked",
        extra=dict.fromkeys(
            set(ALLOWED) - {"user", "client", "session", "record", "connection"}, value
        ),
    )
    assert_no_secret(written)


def test_allowed_names_keep_their_forms(written: Written) -> None:
    user = uuid4()
    extra = {
        "route": "v1/apps/<slug:slug>/manifest",
        "model": "meta-llama/Llama-3.3-70B-Instruct",
        "task": "accounts.mail.send_invitation",
        "user": user,
        "client": str(UUID(int=7)),
        "address": "2001:db8::1",
        "seconds": 0.5,
        "job": 12,
    }
    ours.info("asked", extra=extra)
    line = line_of(written)
    assert {name: line[name] for name in extra} == {**extra, "user": str(user)}


def failing(secret: str) -> None:
    prompt = secret
    nested = RuntimeError(f"could not answer {prompt}")
    nested.add_note(secret)
    raise nested from KeyError(secret)


@pytest.mark.parametrize("secret", SECRETS)
def test_exceptions_are_written_without_messages_lines_or_locals(
    written: Written, secret: str
) -> None:
    try:
        failing(secret)
    except RuntimeError:
        ours.exception("answer_failed")
    line = line_of(written)
    assert [each["class"] for each in line["exceptions"]] == ["RuntimeError", "KeyError"]
    assert (
        line["exceptions"][0]["frames"][-1]
        == f"tests/platform/observability/test_logs.py:{failing.__code__.co_firstlineno + 4} failing"
    )
    assert "raise" not in written.getvalue()
    assert_no_secret(written)


@pytest.mark.django_db
def test_details_of_the_database_are_not_written(written: Written) -> None:
    with connection.cursor() as cursor:
        cursor.execute("CREATE TEMPORARY TABLE secrets (word text UNIQUE)")
        with pytest.raises(IntegrityError, match=PASSWORD) as broken:
            cursor.execute("INSERT INTO secrets VALUES (%s), (%s)", [PASSWORD, PASSWORD])
    logging.getLogger("django.db.backends").error("failed: %s", broken.value, exc_info=broken.value)
    assert line_of(written)["exceptions"][1]["sqlstate"] == "23505"
    assert_no_secret(written)


def test_a_group_of_exceptions_is_written_without_messages(written: Written) -> None:
    ours.error(
        "many_failed",
        exc_info=ExceptionGroup(PROMPT, [ValueError(PASSWORD), psycopg.DataError(JWT)]),
    )
    assert [each["class"] for each in line_of(written)["exceptions"]] == [
        "ExceptionGroup",
        "ValueError",
        "psycopg.DataError",
    ]
    assert_no_secret(written)


def test_arguments_that_do_not_fit_leak_nothing(
    written: Written, capfd: pytest.CaptureFixture[str]
) -> None:
    record = ours.makeRecord(ours.name, logging.INFO, __file__, 1, "%d and %d", (1,), None)
    service_handler().handle(record)
    line = line_of(written)
    assert (line["event"], line["reason"]) == ("unloggable", "TypeError")
    assert capfd.readouterr().err == ""


def test_a_requested_stack_is_left_out(written: Written) -> None:
    ours.info("here", stack_info=True)
    assert "File" not in written.getvalue()


def test_jobs_are_named_and_their_arguments_are_not_written(written: Written) -> None:
    app = procrastinate.App(connector=InMemoryConnector())

    @app.task(name="mail.send", queue="mail")
    def send(text: str) -> None:
        raise RuntimeError(text)

    with app.open():
        send.defer(text=PROMPT)
        app.run_worker(wait=False, install_signal_handlers=False, listen_notify=False)
    assert_no_secret(written)
    (failed,) = (line for line in written.lines() if line.get("action") == "job_error")
    assert (failed["task"], failed["queue"], failed["job"]) == ("mail.send", "mail", 1)
    assert isinstance(failed["worker"], int)
    assert failed["exceptions"][0]["class"] == "RuntimeError"


@pytest.mark.parametrize(
    "name",
    ["django.request", "django.security.DisallowedHost", "django.security.csrf", "django.server"],
)
def test_loggers_that_write_paths_write_nothing(
    written: Written, name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    logging.getLogger(name).error("Not Found: %s", f"/account/password/{REFRESH}")
    assert written.getvalue() == ""
    assert capfd.readouterr().err == ""


def test_django_writes_through_our_handler_alone() -> None:
    assert logging.getLogger("django").handlers == []
    assert settings.LOGGING["root"]["handlers"] == ["out"]


@pytest.fixture
def taken_over(monkeypatch: pytest.MonkeyPatch) -> None:
    for place, name in (
        (logging, "raiseExceptions"),
        (warnings, "showwarning"),
        (sys, "excepthook"),
        (sys, "unraisablehook"),
        (threading, "excepthook"),
    ):
        monkeypatch.setattr(place, name, getattr(place, name))
    logs.take_over()


@pytest.mark.usefixtures("taken_over")
def test_warnings_are_written_by_kind_and_place() -> None:
    written = Written()
    handler = logging.StreamHandler(written)
    handler.setFormatter(AllowListFormatter())
    logs.log.addHandler(handler)
    try:
        warnings.showwarning(UserWarning(PASSWORD), UserWarning, __file__, 12)
    finally:
        logs.log.removeHandler(handler)
    line = line_of(written)
    assert (line["event"], line["category"], line["place"]) == (
        "warning",
        "UserWarning",
        "tests/platform/observability/test_logs.py:12",
    )
    assert_no_secret(written)


@pytest.mark.usefixtures("taken_over")
def test_uncaught_errors_are_written_without_messages(
    written: Written, capfd: pytest.CaptureFixture[str]
) -> None:
    error = ValueError(PASSWORD)
    sys.excepthook(ValueError, error, None)
    thread = threading.Thread(target=failing, args=(PROMPT,))
    thread.start()
    thread.join(60)
    leaver = threading.Thread(target=sys.exit, args=(PASSWORD,))
    leaver.start()
    leaver.join(60)
    assert [line["event"] for line in written.lines()] == ["uncaught", "uncaught_in_thread"]
    assert_no_secret(written)
    assert capfd.readouterr().err == ""


@pytest.mark.usefixtures("taken_over")
def test_errors_of_destructors_are_written_without_messages(written: Written) -> None:
    class Careless:
        def __del__(self) -> None:
            raise ValueError(PASSWORD)

    careless = Careless()
    del careless
    assert line_of(written)["event"] == "unraisable"
    assert_no_secret(written)
