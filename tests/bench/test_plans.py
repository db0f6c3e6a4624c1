"""The page of plans shows every statement of a path and leaves no rows behind."""

from functools import partial

import pytest
from django.db import connection

from accounts.models import AuditEvent, RefreshToken, Session, User
from accounts.sessions import rotation
from accounts.sessions.sign_in import TokenPair
from licensing import callers
from releases.models import Publication, Purge, ShellChannel
from tests.bench import plans
from tests.bench.grown import Person
from tests.bench.releasing import publisher
from usage import settlement
from usage.models import UsageRecord

pytestmark = pytest.mark.django_db
# The beginning of each path's last statement.
LAST: dict[str, str] = {
    "license/status": callers._CALLER.text,
    "llm/complete: admission and settlement": settlement._SETTLE.text,
    "auth/refresh": rotation._REPLACE.text,
    "auth/login": 'INSERT INTO "accounts_auditevent"',
}
WRITTEN_BY_A_PUBLISH = (
    "INSERT INTO releases_servedtoken",
    "INSERT INTO releases_shellchannel",
    "UPDATE releases_shellchannel",
    "INSERT INTO releases_shellrelease",
    "INSERT INTO releases_shellartifact",
    "INSERT INTO releases_publication",
    "UPDATE releases_publication",
    "INSERT INTO releases_purge",
    "UPDATE releases_purge",
    "INSERT INTO accounts_auditevent",
    "procrastinate_defer_jobs",
)


@pytest.fixture
def person(user: User, pair: TokenPair) -> Person:
    assert user.client_id is not None
    return Person(
        id=user.pk,
        email=user.email,
        client_id=user.client_id,
        session_id=Session.objects.get().pk,
        access=str(pair.access),
        refresh=pair.refresh,
    )


@pytest.mark.full
@pytest.mark.parametrize("path", plans.PATHS)
def test_every_statement_of_a_path_has_its_plan(person: Person, path: str) -> None:
    found = plans.explained(partial(plans.PATHS[path], person))
    assert found
    assert all("Execution Time" in plan for _, plan in found)
    if path in LAST:
        assert found[-1][0].startswith(LAST[path].strip())


def test_the_writes_of_the_page_are_taken_back(person: Person) -> None:
    for ask in plans.PATHS.values():
        plans.explained(partial(ask, person))
    assert not UsageRecord.objects.exists()
    assert RefreshToken.objects.get().replaced_at is None


def test_a_prepared_statement_is_planned_for_any_values(person: Person) -> None:
    [(_, plan)] = plans.explained(partial(plans.PATHS["license/status"], person))
    assert "(id = $1)" in plan
    assert str(person.session_id) not in plan


def test_a_publish_is_on_the_page_as_a_whole() -> None:
    with publisher() as publish:
        publish("stable")
        before, written = ShellChannel.objects.get(), AuditEvent.objects.count()
        found = plans.explained(partial(publish, "stable"))
    asked = [statement.replace('"', "") for statement, _ in found]
    for start in WRITTEN_BY_A_PUBLISH:
        assert any(start in each for each in asked), start
    assert (Publication.objects.count(), Purge.objects.count()) == (1, 1)
    assert AuditEvent.objects.count() == written
    assert ShellChannel.objects.get().fence == before.fence


def test_a_statement_without_a_plan_is_refused() -> None:
    def look() -> None:
        with connection.cursor() as cursor:
            cursor.execute("TABLE releases_purge")

    with pytest.raises(AssertionError, match="TABLE"):
        plans.explained(look)


def test_a_statement_is_listed_once_with_its_plan_at_each_size() -> None:
    small = [("SELECT 1", "one"), ("SELECT 2", "two")]
    page = "\n".join(plans._path({10: small, 1000: [("SELECT 1", "more"), ("SELECT 1", "again")]}))
    assert page.count("SELECT 1") == 1
    assert "At 1,000 rows, the first of 2 times:\n\n```\nmore" in page
    assert "At 1,000 rows it is not asked." in page
