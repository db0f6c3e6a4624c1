"""No name that outlives a process is lost or changed unnoticed."""

import csv
import io
import os
import re
from collections.abc import Iterable

import pytest
from pytest_django.plugin import DjangoDbBlocker

from tests.lasting.files import LISTED, End, ends, listed, rows, write
from tests.lasting.kinds import KINDS, Name, names


@pytest.fixture(scope="module")
def found(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> set[Name]:
    with django_db_blocker.unblock():
        return names()


def test_every_lasting_name_is_listed_and_none_is_lost(found: set[Name]) -> None:
    known = listed()
    lost = {each for each in known - found if not is_ended(each)}
    assert not lost, (
        "Rows, mails, browsers or programs of before may still hold these names, and the code has them no more:\n"
        f"{written(lost)}\n"
        "Give each back; or add it to docs/ended-names.csv, with the release since which nothing writes it and how "
        "one of before is understood."
    )
    back = set(filter(is_ended, found))
    assert not back, (
        f"docs/ended-names.csv says of these that nothing writes them:\n{written(back)}"
    )
    if "UPDATE_DOCS" in os.environ:
        write(found)
    new, over = found - listed(), set(filter(is_ended, listed()))
    assert not new | over, (
        f"docs/lasting-names.csv lacks names or has ended ones:\n{written(new | over)}\nList them by: make docs"
    )


def is_ended(name: Name) -> bool:
    return any(each.covers(name) for each in ends())


def test_the_list_has_every_kind_in_order() -> None:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows(listed()))
    assert LISTED.read_text() == text.getvalue(), "Write it by: make docs"
    assert {kind for kind, *_ in listed()} == set(KINDS)


@pytest.mark.parametrize("end", ends(), ids=lambda end: f"{end.kind} {end.name}")
def test_an_ended_name_says_since_when_and_how_it_is_understood(end: End) -> None:
    assert end.kind in KINDS
    assert re.fullmatch(r"\d+\.\d+\.\d+", end.since)
    assert end.understood


@pytest.mark.parametrize(
    "name",
    [
        ("task", "mail.send", "message_id"),
        ("job lock", "told item {}", ""),
        ("periodic task", "nightly.run", ""),
        ("content type", "accounts.user", "view_user"),
        ("choice", "accounts_passwordlink.kind", "one_time"),
        ("migration", "accounts.0001_initial", ""),
        ("table", "accounts_user", "password"),
        ("advisory lock", "usage.daily", ""),
        ("advisory lock", "split_database_roles", ""),
        ("sealed column", "llmproxy_provider.api_key", "base_url"),
        ("derived key", "django.contrib.sessions.SessionStore", ""),
        ("derived key", "refresh retry\\0", ""),
        ("session key", "kept_form", ""),
        ("cache key", "llm:cools:{}:{}", ""),
        ("address", "/admin/accounts/user/<path:object_id>/change/", "admin:accounts_user_change"),
        ("command", "nightly", "--dry-run"),
        ("metric", "shell_calls", "surface"),
        ("metric", "shell_jobs_failed", ""),
        ("metric", "shell_spend_limit_share", "provider"),
        ("log event", "night_job_ended", ""),
        ("log event", "cache_back", ""),
        ("audit member", "jobs", ""),
    ],
    ids=" ".join,
)
def test_names_are_found_however_the_code_has_them(name: Name, found: set[Name]) -> None:
    assert name in found


def written(some: Iterable[Name]) -> str:
    return "\n".join(f"  {','.join(each).rstrip(',')}" for each in sorted(some))
