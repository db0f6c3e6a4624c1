"""Acts on several rows that fail on the way: the done part stays, and the operator is told."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import psycopg
import pytest
from django.db import connection
from django.urls import reverse

from accounts.models import AuditEvent, Session, User
from config.platform.jobs.queue import title_of
from tests.conftest import Browser
from tests.console.conftest import World

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("_empty_queue")]

# A server that ends the connection of whoever touches one row, as when it goes away in the middle.
GOES_AWAY = """
CREATE FUNCTION goes_away() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NEW; END $$;
CREATE {kind} goes_away {when} ON {table} {how} FOR EACH ROW WHEN ({row}) EXECUTE FUNCTION goes_away()
"""
IN_THE_MIDDLE = {"kind": "TRIGGER", "when": "BEFORE UPDATE", "how": ""}
AT_THE_COMMIT = {
    "kind": "CONSTRAINT TRIGGER",
    "when": "AFTER INSERT OR UPDATE",
    "how": "DEFERRABLE INITIALLY DEFERRED",
}
IS_BACK = "DROP TRIGGER goes_away ON {table}; DROP FUNCTION goes_away()"


@pytest.fixture
def _empty_queue() -> Iterator[None]:
    """The queue's tables are not Django's, so they are not emptied with the others."""
    yield
    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE procrastinate_jobs CASCADE")


@contextmanager
def waited_for_in_vain(email: str) -> Iterator[None]:
    """Somebody else holds a person's row for longer than anybody waits."""
    with psycopg.connect(**connection.get_connection_params()) as other:  # type: ignore[attr-defined]
        other.execute("SELECT FROM accounts_user WHERE email = %s FOR UPDATE", [email])
        with connection.cursor() as cursor:
            cursor.execute("SET lock_timeout = '200ms'")
        try:
            yield
        finally:
            with connection.cursor() as cursor:
                cursor.execute("RESET lock_timeout")


@contextmanager
def going_away(table: str, row: str, at: Mapping[str, str] = IN_THE_MIDDLE) -> Iterator[None]:
    with connection.cursor() as cursor:
        cursor.execute(GOES_AWAY.format(table=table, row=row, **at))
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            cursor.execute(IS_BACK.format(table=table))


def revoked() -> set[str]:
    events = AuditEvent.objects.filter(action="user:tokens_revoked")
    return set(events.values_list("target", flat=True))


def revoke(console: Browser, people: list[User]) -> str:
    chosen = {"target": [each.pk for each in people], "reason": "Office broken into."}
    response = console.post(reverse("admin:accounts_user_revoke_several"), chosen)
    assert response.status_code == 200
    return " ".join(response.content.decode().split())


@pytest.mark.parametrize("how", ["locked", "away"])
def test_the_rows_done_before_one_failed_are_told_and_the_rest_is_asked_for_again(
    console: Browser, world: World, how: str
) -> None:
    people = world.people[:4]
    third = people[2].email
    fails = (
        waited_for_in_vain(third)
        if how == "locked"
        else going_away("accounts_user", f"NEW.email = '{third}'")
    )
    with fails:
        text = revoke(console, people)
    assert f"Done: 2 of 4. It stopped at {third};" in text
    assert "The service is not available at the moment." in text
    assert revoked() == {each.email for each in people[:2]}
    assert Session.objects.filter(ended_at=None).count() == 1
    for person in people:
        asked_again = f'name="target" value="{person.pk}"' in text
        assert asked_again == (person.email >= third), person


def test_jobs_of_a_kind_that_are_queued_again_up_to_one_are_counted(console: Browser) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO procrastinate_jobs (queue_name, task_name, args, status)"
            " SELECT 'usage', 'usage.tell', '{}', 'failed' FROM generate_series(1, 3) RETURNING id"
        )
        jobs = [job for (job,) in cursor.fetchall()]
    address = reverse("admin:procrastinate_procrastinatejob_retry_alike", args=[jobs[0]])
    with going_away("procrastinate_jobs", f"NEW.id = {jobs[2]} AND NEW.status = 'todo'"):
        text = console.post(address, {"reason": "The database is back."}).content.decode()
    assert f"Done: 2 of 3. It stopped at {title_of('usage.tell')} {jobs[2]};" in text
    assert AuditEvent.objects.filter(action="job:retried").count() == 2
    done = console.post(address, {"reason": "The database is back."}, follow=True)
    assert "1 job queued again." in done.content.decode()
    assert AuditEvent.objects.filter(action="job:retried").count() == 3


def test_an_action_that_could_not_be_committed_is_not_said_to_be_done(
    console: Browser, world: World
) -> None:
    email, added = "new@acme.test", reverse("admin:accounts_user_add")
    with going_away("accounts_user", f"NEW.email = '{email}'", AT_THE_COMMIT):
        given = {"email": email, "client": str(world.person.client)}
        assert console.post(added, given).status_code == 503
    assert not User.objects.filter(email=email).exists()
    assert email not in console.get(reverse("admin:accounts_user_changelist")).content.decode()


def test_one_alone_that_fails_is_refused_as_ever(console: Browser, world: World) -> None:
    with waited_for_in_vain(world.person.email):
        address = reverse("admin:accounts_user_revoke", args=[world.person.pk])
        assert console.post(address, {"reason": "Laptop lost."}).status_code == 503
    assert revoked() == set()
