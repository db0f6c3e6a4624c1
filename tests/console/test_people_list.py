"""The list of people tells their true state, as search and their client's page do, in a fixed number of queries."""

import re
from collections.abc import Callable
from datetime import datetime, timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from accounts.audit import Actor
from accounts.models import Client, Session, User
from accounts.people.access import disable
from accounts.people.invitations import emails_in, invite
from accounts.sessions.revocation import revoke_all
from accounts.sessions.sign_in import Device, TokenPair
from config.composition.person_state import CHIPS, with_state
from config.console.template_tags import dollars
from licensing.licences import create_client, set_operator_status
from licensing.models import Plan, Standing
from tests.conftest import PASSWORD, Browser
from tests.console.conftest import password_hash
from tests.console.test_usage_and_money import use
from usage.models import DailyUsage
from usage.spending.daily import count_days
from usage.stops import stop_model_calls

pytestmark = pytest.mark.django_db
LIST = reverse("admin:accounts_user_changelist")

SignIn = Callable[..., TokenPair]


@pytest.fixture
def people(
    organisation: Client, plan: Plan, signing_key: None, by: Actor, sign_in_at_once: SignIn
) -> dict[str, User]:
    """A person of each state, by its name in the address."""
    now = timezone.now()
    device = Device(fingerprint="mac", address="198.51.100.9")

    def one(name: str, client: Client | None = organisation, *, enters: bool = True) -> User:
        email = f"{name}@states.test"
        user = User.objects.create(email=email, client=client, password=password_hash())
        if enters and client:
            sign_in_at_once(email=email, password=PASSWORD, device=device, now=now)
        return user

    why = {"reason": "Asked for.", "by": by, "now": now}
    found = {state: one(state) for state in ("yes", "stopped", "disabled", "revoked")}
    found["unseen"] = one("unseen", enters=False)
    found["alone"] = one("alone", None)
    found["unlicensed"] = one("unlicensed", Client.objects.create(name="Bare"), enters=False)
    stop_model_calls(user_id=found["stopped"].pk, ends_at=None, **why)
    disable(user_id=found["disabled"].pk, **why)
    revoke_all(user_id=found["revoked"].pk, **why)
    unpaid = create_client(name="Unpaid", plan=plan, by=by, now=now)
    found["suspended"] = one("suspended", unpaid)
    set_operator_status(licence_id=unpaid.licence.pk, status=Standing.SUSPENDED, **why)
    for state, at in (("waiting", now), ("over", now - timedelta(days=9))):
        invite(named=emails_in(f"{state}@states.test"), client=organisation, by=by, now=at)
        found[state] = User.objects.get(email=f"{state}@states.test")
    found["never"] = User.objects.create_user("never@states.test", client=organisation)
    return found


def chips(text: str) -> dict[str, str]:
    """The chip of each person whose row is shown."""
    rows = re.split(r"<tr\b", text)
    found = {}
    for row in rows:
        name = re.search(r"([\w-]+)@states\.test", row)
        chip = re.search(r'class="chip chip-(\w+)">([^<]+)<', row)
        if name and chip:
            found[name[1]] = f"{chip[1]}: {chip[2]}"
    return found


def told(states: object) -> dict[str, str]:
    return {state: f"{CHIPS[state].kind}: {CHIPS[state].word}" for state in states}  # type: ignore[attr-defined]


def test_each_state_has_a_chip_in_the_list(console: Browser, people: dict[str, User]) -> None:
    # A disabled person who is called active: Security-Onion-Solutions/securityonion#5055.
    assert chips(console.get(LIST).content.decode()) == told(people)


def test_search_tells_the_same_state(console: Browser, people: dict[str, User]) -> None:
    # Told in the search and not in lists: ilios/frontend#3766.
    for state in people:
        text = console.get(reverse("admin:search"), {"q": f"{state}@states.tes"}).content.decode()
        assert chips(text) == told([state]), state


def test_the_page_of_a_client_tells_the_same_state_of_its_people(
    console: Browser, people: dict[str, User], organisation: Client
) -> None:
    text = console.get(reverse("admin:accounts_client_change", args=[organisation.pk]))
    here = [state for state, each in people.items() if each.client_id == organisation.pk]
    people_part = text.content.decode().partition('id="people"')[2].partition("</table>")[0]
    assert chips(people_part) == told(here)


def test_a_filter_finds_the_people_of_each_state_alone(
    console: Browser, people: dict[str, User]
) -> None:
    for state, person in people.items():
        rows = console.get(LIST, {"joined": state}).context["cl"].result_list
        assert [each for each in rows if "@states" in each.email] == [person], state


def test_a_stop_that_has_ended_is_none(
    user: User, by: Actor, now: datetime, sign_in_at_once: SignIn, signing_key: None
) -> None:
    device = Device(fingerprint="mac", address="198.51.100.9")
    sign_in_at_once(email=user.email, password=PASSWORD, device=device, now=now)
    ends = now + timedelta(hours=1)
    stop_model_calls(user_id=user.pk, ends_at=ends, reason="Loops.", by=by, now=now)
    states = [
        with_state(User.objects.all(), now=at).get(pk=user.pk).state
        for at in (now, ends + timedelta(seconds=1))
    ]
    assert states == ["stopped", "yes"]


def test_a_person_who_signs_in_again_is_revoked_no_more(
    people: dict[str, User], sign_in_at_once: SignIn
) -> None:
    later = timezone.now() + timedelta(minutes=1)
    device = Device(fingerprint="mac", address="198.51.100.9")
    sign_in_at_once(email="revoked@states.test", password=PASSWORD, device=device, now=later)
    shown = with_state(User.objects.all(), now=later).get(pk=people["revoked"].pk)
    assert shown.state == "yes"
    assert shown.last_seen == Session.objects.order_by("-started_at")[0].last_used_at


def test_the_list_names_the_client_and_what_was_spent(
    console: Browser, people: dict[str, User], organisation: Client
) -> None:
    use(people["yes"], output=3_000)
    count_days(now=timezone.now())
    rows = console.get(LIST, {"q": "yes@states.test"}).content.decode().partition("<tbody>")[2]
    (day,) = DailyUsage.objects.filter(user=people["yes"])
    assert day.cost > 10_000
    assert dollars(day.cost) in rows
    assert re.search(rf'<a href="[^"]+/{organisation.pk}/change/">{organisation}</a>', rows)


def test_the_list_takes_as_many_queries_for_fifty_people_as_for_one(
    console: Browser, organisation: Client, people: dict[str, User]
) -> None:
    # Queries for each row: makeabilitylab/makeabilitylabwebsite#1349, matthiask/django-admin-sso#14.
    def asked() -> int:
        with CaptureQueriesContext(connection) as queries:
            assert console.get(LIST).status_code == 200
        return len(queries)

    few = asked()
    User.objects.bulk_create(
        User(email=f"more-{number}@states.test", client=organisation) for number in range(40)
    )
    assert asked() == few


def test_the_filter_of_each_state_finds_those_of_that_state_without_computing_it(
    console: Browser, people: dict[str, User]
) -> None:
    # A status that is computed for every row and sorted: dagster-io/dagster#25659, harvard-lil/h2o#1768.
    of = dict(with_state(User.objects.all(), now=timezone.now()).values_list("pk", "state"))
    for state in CHIPS:
        with CaptureQueriesContext(connection) as queries:
            found = console.get(LIST, {"joined": state}).context["cl"].result_list
        assert {each.pk for each in found} == {pk for pk, its in of.items() if its == state}, state
        for each in queries:
            assert "CASE" not in each["sql"].partition("WHERE")[2].partition("ORDER BY")[0], state


def test_the_count_of_a_list_computes_no_column(console: Browser, people: dict[str, User]) -> None:
    # A count that carries what only the shown rows need: raft-tech/TANF-app#6116, uktrade/data-hub-api#1448.
    with CaptureQueriesContext(connection) as queries:
        console.get(LIST)
    counts = [each["sql"] for each in queries if each["sql"].startswith("SELECT COUNT")]
    people_counts = [sql for sql in counts if "accounts_user" in sql]
    assert people_counts
    assert not [sql for sql in people_counts if "usage_" in sql or "accounts_session" in sql]


def test_no_acts_are_offered_by_an_empty_choice(console: Browser, people: dict[str, User]) -> None:
    text = console.get(LIST).content.decode()
    assert "---------" not in text
    assert "Action:" not in text
