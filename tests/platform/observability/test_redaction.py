import errno
import logging.config
from collections.abc import Callable

import psycopg
import pytest
from django.db import connection
from django.db.utils import IntegrityError

from config.platform.observability.redaction import (
    MAX_FAILURES,
    MAX_FRAMES,
    chain,
    class_name,
    place_of,
)
from config.platform.problems.problem import NotFound

CANARY = "canary-51ee"


def caught(action: Callable[[], object]) -> BaseException:
    with pytest.raises(BaseException) as caught:
        action()
    return caught.value


def test_an_exception_is_reduced_to_class_and_frames() -> None:
    def fail() -> None:
        raise ValueError(CANARY)

    (failure,) = chain(caught(fail))
    assert failure.name == "ValueError"
    assert (
        str(failure.frames[-1])
        == f"tests/platform/observability/test_redaction.py:{fail.__code__.co_firstlineno + 1} {fail.__qualname__}"
    )
    assert CANARY not in repr(failure)


def test_causes_and_contexts_follow_in_turn() -> None:
    error, cause, context = NotFound(CANARY), OSError(errno.ENOSPC, CANARY), KeyError(CANARY)
    error.__cause__, cause.__context__ = cause, context
    failures = chain(error)
    assert [failure.name for failure in failures] == [
        "config.platform.problems.problem.NotFound",
        "OSError",
        "KeyError",
    ]
    assert [failure.facts for failure in failures] == [
        {"code": "not_found"},
        {"errno": errno.ENOSPC},
        {},
    ]


def test_a_suppressed_context_is_left_out() -> None:
    error = ValueError()
    error.__context__, error.__suppress_context__ = KeyError(CANARY), True
    assert [failure.name for failure in chain(error)] == ["ValueError"]


def test_members_of_a_group_follow() -> None:
    group = ExceptionGroup(CANARY, [ValueError(CANARY), ExceptionGroup(CANARY, [KeyError(CANARY)])])
    assert [failure.name for failure in chain(group)] == [
        "ExceptionGroup",
        "ValueError",
        "ExceptionGroup",
        "KeyError",
    ]


def test_circular_and_endless_chains_end() -> None:
    first, second = ValueError(), KeyError()
    first.__context__, second.__context__ = second, first
    assert len(chain(first)) == 2
    error: Exception = ValueError()
    for _ in range(50):
        error, before = ValueError(), error
        error.__context__ = before
    assert len(chain(error)) == MAX_FAILURES


def test_a_recursion_keeps_its_last_frames() -> None:
    def fall() -> None:
        fall()

    (failure,) = chain(caught(fall))
    assert failure.name == "RecursionError"
    assert len(failure.frames) == MAX_FRAMES


def test_frames_of_libraries_are_left_out_except_the_last() -> None:
    def fail() -> None:
        logging.config.dictConfig(
            {"version": 1, "formatters": {"x": {"()": "nothing.of.the.kind"}}}
        )

    frames = chain(caught(fail))[0].frames
    assert [frame.own for frame in frames[:-3]] == [True] * (len(frames) - 3)
    assert frames[-1].file == "logging/config.py"


@pytest.mark.django_db
def test_a_broken_constraint_is_named_and_the_row_is_not() -> None:
    def fail() -> None:
        with connection.cursor() as cursor:
            cursor.execute("CREATE TEMPORARY TABLE notes (word text CONSTRAINT one_word UNIQUE)")
            cursor.execute("INSERT INTO notes VALUES (%s), (%s)", [CANARY, CANARY])

    error = caught(fail)
    assert CANARY in str(error)
    django, driver = chain(error)
    assert (django.name, driver.name) == (
        "django.db.utils.IntegrityError",
        "psycopg.errors.UniqueViolation",
    )
    assert driver.facts == {"sqlstate": "23505", "constraint": "one_word"}
    assert CANARY not in repr([django, driver])


def test_names_of_built_in_classes_have_no_module() -> None:
    assert class_name(ValueError()) == "ValueError"
    assert class_name(psycopg.OperationalError()) == "psycopg.OperationalError"
    assert class_name(IntegrityError()) == "django.db.utils.IntegrityError"


def test_files_are_named_without_the_machine() -> None:
    assert place_of(__file__) == ("tests/platform/observability/test_redaction.py", True)
    assert place_of(psycopg.__file__) == ("psycopg/__init__.py", False)
    assert place_of(logging.__file__) == ("logging/__init__.py", False)
    assert place_of("<string>") == ("<string>", False)
