"""All activity of a client: the list behind its page has what the page shows, and what belongs to its people."""

from datetime import datetime, timedelta
from uuid import uuid4

import pytest
from django.db import connection

from accounts.admin.audit import EVENTS_SHOWN, events_of_client, log_of_client
from accounts.audit import Actor, record, record_each
from accounts.models import Client, User
from licensing.licences import create_client
from licensing.models import Plan
from tests.conftest import Browser
from tests.console.conftest import World
from usage.spending.budgets import set_budget
from usage.stops import stop_model_calls

pytestmark = pytest.mark.django_db


def listed(console: Browser, client: Client, more: str = "") -> list[tuple[str, str]]:
    events = console.get(f"{log_of_client(client.pk)}{more}").context["cl"].result_list
    return [(event.action, event.target) for event in events]


# ``of`` is the public report of a log that leaves out what belongs to a member (owner/repository#number).
@pytest.mark.parametrize(
    ("act", "of"),
    [
        ("client:renamed", "OctopusDeploy/Issues#8568"),
        ("licence:operator_set", "OctopusDeploy/Issues#8568"),
        ("user:disabled", "FlowFuse/flowfuse#4746"),
        ("override:granted", "netxms/netxms#3202"),
        ("user:model_calls_stopped", "netxms/netxms#3202"),
        ("connection:removed", "claamiya/Zilance#137"),
    ],
)
def test_an_event_of_a_client_or_of_its_people_is_in_its_list(
    console: Browser, world: World, by: Actor, now: datetime, act: str, of: str
) -> None:
    owner = world.client if act.partition(":")[0] in {"client", "licence"} else world.people[7]
    record(act, owner, by=by, now=now)
    other = Client.objects.exclude(pk=world.client.pk).get()
    assert (act, str(owner)) in listed(console, world.client)
    assert (act, str(owner)) not in listed(console, other)


def test_the_list_has_what_the_page_shows(
    console: Browser, world: World, by: Actor, now: datetime
) -> None:
    for person in world.people:
        stop_model_calls(user_id=person.pk, ends_at=None, reason="x", by=by, now=now)
    set_budget(client_id=world.client.pk, monthly=10, reason="x", by=by, now=now)
    page = console.get(f"/admin/accounts/client/{world.client.pk}/change/")
    shown = [(event.action, event.target) for event in page.context["recent_events"]]
    assert len(shown) == EVENTS_SHOWN
    assert shown == listed(console, world.client)[:EVENTS_SHOWN]
    assert f'href="{log_of_client(world.client.pk)}"' in page.content.decode()


def test_the_list_names_the_client_and_can_be_narrowed(console: Browser, world: World) -> None:
    page = console.get(log_of_client(world.client.pk))
    assert "Acme and its people" in page.content.decode()
    acts = {act for act, _ in listed(console, world.client, "&subject=override")}
    assert acts == {"override:granted"}
    for nonsense in ("nobody", f"{uuid4()}"):
        answer = console.get("/admin/accounts/auditevent/", {"client": nonsense})
        assert (answer.status_code, answer.context["cl"].result_count) == (200, 0)


def test_the_events_of_a_client_are_read_by_index(plan: Plan, by: Actor, now: datetime) -> None:
    clients = [create_client(name=f"Client {n}", plan=plan, by=by, now=now) for n in range(40)]
    people = [
        User(email=f"{n}@{client.pk}.test", client=client) for client in clients for n in range(20)
    ]
    User.objects.bulk_create(people)
    of = [(person.email, person.pk) for person in people]
    for day in range(30):
        record_each("user:enabled", by=by, now=now - timedelta(days=day), of=of)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE accounts_auditevent, accounts_user, accounts_client")
    plan_of_list = events_of_client(clients[3].pk)[:50].explain()
    assert "Seq Scan on accounts_auditevent" not in plan_of_list, plan_of_list
    assert events_of_client(clients[3].pk).count() == 20 * 30 + 1
