"""The audit log as operators read it."""

import csv
import json
from datetime import UTC, datetime, timedelta

import pytest
from django.contrib import admin
from django.contrib.postgres.search import SearchQuery
from django.db import connection
from django.db.models import Q
from django.urls import resolve, reverse
from django.utils.html import strip_tags

from accounts.admin.audit import PAGES, page_of_target
from accounts.audit import Actor, record
from accounts.models import AuditEvent, Client, Role, User
from accounts.models.audit import AUDIT_WORDS
from config.console.template_tags import changes
from config.platform.acts import ACTS
from tests.conftest import Browser
from tests.console.conftest import World

pytestmark = pytest.mark.django_db

LOG = "/admin/accounts/auditevent/"


def listed(browser: Browser, query: str) -> list[str]:
    """The acts that a list shows, in its order."""
    return [event.action for event in browser.get(f"{LOG}?{query}").context["cl"].result_list]


def written(**fields: object) -> AuditEvent:
    return AuditEvent(action="licence:set", **fields)


def test_events_are_narrowed_by_subject_actor_target_and_id(
    console: Browser, world: World, operator: User
) -> None:
    assert set(listed(console, "subject=licence")) == {"licence:operator_set"}
    assert set(listed(console, "q=override:")) == {"override:granted"}
    assert set(listed(console, f"q={world.people[2].email}")) == {
        "override:granted",
        "session:started",
    }
    assert set(listed(console, f"q={world.client.pk}")) == {
        "client:created",
        "licence:operator_set",
    }
    assert set(listed(console, f"target_id={world.person.pk}")) == {"override:granted"}
    assert set(listed(console, "q=198.51.100.9")) == {"session:started"}
    assert listed(console, "q=nobody@nowhere.test") == []


def test_events_are_found_by_prefix_of_actor_or_target_and_by_request_id(
    console: Browser, world: World, by: Actor, now: datetime
) -> None:
    sure = Actor(name="100%_sure@shell.test", request_id="4ABB6E7B-19e5-4ce3-b265-8d6c126670f7")
    record("client:renamed", by=sure, now=now, target="100%_sure")
    for query, found in {
        "q=PERSON-2": {"override:granted", "session:started"},
        "q=acm": {"client:created", "licence:operator_set", "override:granted", "session:started"},
        "q=100%25_": {"client:renamed"},
        "q=100__": {"client:renamed"},
        "q=00_sure": set(),
        "q=licence:operator_set": {"licence:operator_set"},
        "q=browser-request-1": set(),
        "q=4ABB6E7B-19e5-4ce3-b265-8d6c126670f7": {"client:renamed"},
        "q=4abb6e7b19e54ce3b2658d6c126670f7": set(),
        "actor=100%25_sure%40shell.test": {"client:renamed"},
        "actor=100": set(),
        "action=session:started": {"session:started"},
        "subject=licence&action=licence:operator_set": {"licence:operator_set"},
    }.items():
        assert set(listed(console, query)) == found, query


def test_the_first_words_of_a_search_count(console: Browser, world: World) -> None:
    assert listed(console, f"q={'acm ' * 10}nobody") == listed(console, "q=acm")
    assert listed(console, f"q={'acm ' * 5_000}") == listed(console, "q=acm")
    people = reverse("admin:accounts_user_changelist")
    assert console.get(people, {"q": "person " * 5_000}).context["cl"].result_count > 0


def test_events_of_a_time_are_shown_in_utc(console: Browser, by: Actor, now: datetime) -> None:
    noon = datetime(2026, 3, 1, 12, tzinfo=UTC)
    for number in range(4):
        record("client:renamed", by=by, now=noon + timedelta(hours=number), target=str(number))

    def targets(query: str) -> list[str]:
        events = console.get(f"{LOG}?{query}").context["cl"].result_list
        return [event.target for event in events]

    assert targets("since=2026-03-01T13:00&until=2026-03-01T15:00") == ["2", "1"]
    assert targets("since=2026-03-01T14:00") == ["3", "2"]
    assert targets("until=2026-03-01T13:00") == ["0"]
    assert targets("since=nonsense&until=") == ["3", "2", "1", "0"]
    assert targets("since=2026-03-01T13:00&q=2") == ["2"]


def test_the_form_for_a_time_keeps_what_else_was_chosen(console: Browser, world: World) -> None:
    text = console.get(f"{LOG}?subject=licence&q=acme&since=2026-03-01T13:00&p=1").content.decode()
    form = " ".join(text[text.index('class="filters"') :].partition("</form>")[0].split())
    assert '<option value="subject=licence" selected>' in form
    assert 'name="q" value="acme"' in form
    assert 'name="since" value="2026-03-01T13:00"' in form
    assert 'name="p"' not in form


def test_the_form_of_filters_leads_to_an_address_without_what_is_empty(console: Browser) -> None:
    sent = {"filter": ["subject=licence", ""], "q": "a b", "since": "", "until": "2026-03-01T13:00"}
    answer = console.get(LOG, sent)
    assert answer.status_code == 302
    assert answer["Location"] == f"{LOG}?q=a+b&until=2026-03-01T13%3A00&subject=licence"


def test_the_acts_of_a_subject_are_offered_once_it_is_chosen(
    console: Browser, world: World
) -> None:
    def offered(query: str) -> set[str]:
        filters = {spec.title: spec for spec in console.get(LOG + query).context["cl"].filter_specs}
        return {value for value, _ in filters["act"].lookup_choices} if "act" in filters else set()

    assert offered("") == set()
    assert offered("?subject=licence") == {"licence:operator_set"}


def test_the_newest_come_first(console: Browser, world: World) -> None:
    times = [event.at for event in console.get(LOG).context["cl"].result_list]
    assert times == sorted(times, reverse=True)


def test_only_subjects_that_occur_are_offered(console: Browser, world: World) -> None:
    filters = {spec.title: spec for spec in console.get(LOG).context["cl"].filter_specs}
    subjects = {value for value, _ in filters["subject"].lookup_choices}
    assert subjects == {"client", "licence", "override", "session", "signing_key"}


def test_every_event_links_to_what_it_was_done_to(
    console: Browser, world: World, by: Actor, now: datetime
) -> None:
    page = console.get(f"{LOG}?all=").content.decode()
    for event in AuditEvent.objects.all():
        target = page_of_target(event)
        assert target is not None, event.action
        # A sentence that names no target is about its actor.
        assert f'href="{target}"' in page or "{}" not in ACTS[event.action].sentence
        assert console.get(target).status_code == 200, event.action


def test_an_event_outlives_its_target(
    console: Browser, by: Actor, now: datetime, operator: User
) -> None:
    record("user:deleted", by=by, now=now, target="gone@acme.test", target_id=operator.pk)
    event = AuditEvent.objects.get()
    target = page_of_target(event)
    operator_page = reverse("admin:accounts_user_change", args=[operator.pk])
    assert target == operator_page
    record("client:deleted", by=by, now=now, target="Gone", target_id="not-an-id")
    gone = page_of_target(AuditEvent.objects.get(target="Gone"))
    assert gone is not None
    response = console.get(gone, follow=True)
    assert response.status_code == 200
    assert "doesn’t exist" in response.content.decode()


def test_targets_without_a_page_are_named_only() -> None:
    assert page_of_target(AuditEvent(action="cap:crossed", target_id="1")) is None
    assert page_of_target(AuditEvent(action="user:created", target_id="")) is None


def test_every_subject_with_a_page_has_a_real_one() -> None:
    for name in PAGES.values():
        assert resolve(reverse(f"admin:{name}_change", args=["x"]))


def test_the_history_of_a_row_is_its_part_of_the_log(console: Browser, world: World) -> None:
    client = reverse("admin:accounts_client_history", args=[world.client.pk])
    assert console.get(client)["Location"] == f"{LOG}?client={world.client.pk}"
    licence = world.client.licence
    history = reverse("admin:licensing_licence_history", args=[licence.pk])
    assert console.get(history)["Location"] == f"{LOG}?target_id={world.client.pk}"


def test_a_change_reads_as_before_and_after() -> None:
    event = written(
        before={"status": "active", "plan": "Starter", "entitlements": []},
        after={
            "status": "grace",
            "plan": "Starter",
            "entitlements": ["forms", "reports"],
            "grace_until": "2026-03-01T10:20:30.123456Z",
        },
    )
    assert str(changes(event)).split(" · ") == [
        '<span class="quiet">status</span> active → grace',
        '<span class="quiet">entitlements</span> – → forms, reports',
        '<span class="quiet">grace until</span> – → 2026-03-01 10:20:30 UTC',
    ]


@pytest.mark.parametrize(
    ("before", "after", "shown"),
    [
        (None, None, ""),
        (None, {"enabled": True}, '<span class="quiet">enabled</span> yes'),
        ({"enabled": False}, None, '<span class="quiet">enabled</span> no'),
        (
            None,
            {"monthly_input_tokens": 1234567},
            '<span class="quiet">monthly input tokens</span> 1,234,567',
        ),
        (None, {"artifacts": [{"size": 10}]}, '<span class="quiet">artifacts</span> size 10'),
        (None, {"name": "<script>"}, '<span class="quiet">name</span> &lt;script&gt;'),
    ],
)
def test_the_contents_of_an_event_are_shown_as_text(
    before: dict[str, object] | None, after: dict[str, object] | None, shown: str
) -> None:
    assert str(changes(written(before=before, after=after))) == shown


STOPPED = {"model_calls": "stopped", "until": None}
SINCE, UNTIL = "2025-11-28T00:47:00Z", "2025-12-02T13:00:00Z"


@pytest.mark.parametrize(
    ("act", "before", "after", "shown"),
    [
        ("restarted", STOPPED | {"since": SINCE}, None,
         "Restarted; had been stopped since 28 Nov 2025."),
        ("restarted", STOPPED | {"since": SINCE, "until": UNTIL}, None,
         "Restarted before 2 Dec 2025; had been stopped since 28 Nov 2025."),
        # Of releases that did not write down since when.
        ("restarted", STOPPED, None, "Restarted."),
        ("restarted", STOPPED | {"until": UNTIL}, None, "Restarted before 2 Dec 2025."),
        ("stopped", None, STOPPED, "Stopped until an operator restarts them."),
        ("stopped", None, STOPPED | {"until": UNTIL}, "Stopped until 2 Dec 2025."),
        ("stopped", STOPPED | {"until": UNTIL}, STOPPED, "Stopped until an operator restarts them."),
    ],
)  # fmt: skip
def test_a_stop_of_model_calls_and_its_end_are_shown_in_a_sentence(
    act: str, before: dict[str, object] | None, after: dict[str, object] | None, shown: str
) -> None:
    event = AuditEvent(action=f"user:model_calls_{act}", before=before, after=after)
    assert strip_tags(changes(event)) == shown


@pytest.mark.parametrize(
    ("before", "after", "shown"),
    [
        (None, {"until": None, "daily": 5}, "daily 5"),
        ({"prices": [], "provider": "default", "note": ""}, None, "provider default"),
        (None, {"seats": 0, "is_default": False, "models": None}, "seats 0 · is default no"),
        ({"ends_at": None}, None, ""),
        ({"plan": None}, {"plan": "Starter"}, "plan – → Starter"),
    ],
)
def test_an_event_that_is_no_change_leaves_out_what_is_empty(
    before: dict[str, object] | None, after: dict[str, object] | None, shown: str
) -> None:
    assert strip_tags(changes(written(before=before, after=after))) == shown


def test_names_in_the_log_are_never_markup(console: Browser, by: Actor, now: datetime) -> None:
    Client.objects.create(name="<b>bold</b>")
    record(
        "client:created", by=by, now=now, target="<b>bold</b>", after={"<i>": "<u>"}, reason="<s>"
    )
    text = console.get(LOG).content.decode()
    for tag in ("<b>bold", "<i>", "<u>", "<s>"):
        assert tag not in text


def test_events_are_found_by_words_of_the_reason_and_by_parts_of_names_by_index(
    console: Browser, by: Actor, now: datetime
) -> None:
    anna = Actor(name="anna.keller@ops.test")
    record(
        "client:renamed", by=anna, now=now, target="Meridian Freight", reason="Invoice 1034 late."
    )
    for query in ("keller", "ops", "freight", "frei", "invoice+1034", "INV+late", "anna+meridian"):
        assert listed(console, f"q={query}") == ["client:renamed"], query
    for query in ("eller", "invoice+1035", "%27+%7C+x", "keller+%26"):
        assert "client:renamed" not in listed(console, f"q={query}") or query == "keller+%26"
    found = AuditEvent.objects.alias(words=AUDIT_WORDS)
    query = SearchQuery("keller:*", search_type="raw", config="simple")
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off")
    plan = found.filter(Q(words=query) | Q(request_id="keller")).order_by().explain()
    assert "audit_by_words" in plan


def test_an_email_is_found_by_its_beginning_and_never_by_the_words_of_its_domain(
    console: Browser, by: Actor, now: datetime
) -> None:
    anna = Actor(name="anna.keller@ops.test")
    record("client:renamed", by=anna, now=now, target="Freight")
    record("user:deleted", by=by, now=now, target="Anna.Keller@ops.test")
    record("plan:added", by=Actor(name="ops.test@anna.keller"), now=now, target="Starter")
    for query in ("Anna.Keller@ops.test", "anna.keller@"):
        assert listed(console, f"q={query}") == ["user:deleted", "client:renamed"], query
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off")
    begins = Q(actor__istartswith="anna@") | Q(target__istartswith="anna@")
    plan = AuditEvent.objects.filter(begins | Q(request_id="anna@")).order_by().explain()
    assert "audit_by_actor_name" in plan
    assert "audit_by_target_name" in plan


def test_auditors_download_the_log_with_its_filters_and_others_do_not(
    console: Browser, operator: User, by: Actor, now: datetime
) -> None:
    record(
        "client:renamed", by=by, now=now, target="=cmd()", reason="a;=b", before={"name": "x"},
        after={"name": "=y"},
    )  # fmt: skip
    record("plan:added", by=by, now=now, target="Starter")
    answer = console.get(f"{LOG}export.ndjson?subject=client")
    (row,) = [json.loads(line) for line in b"".join(answer.streaming_content).splitlines()]  # type: ignore[attr-defined]
    assert (row["action"], row["target"], row["before"]) == (
        "client:renamed",
        "=cmd()",
        {"name": "x"},
    )
    assert datetime.fromisoformat(row["at"]) == now
    answer = console.get(f"{LOG}export.csv?subject=client")
    header, line = csv.reader(b"".join(answer.streaming_content).decode().splitlines())  # type: ignore[attr-defined]
    assert line[header.index("target")] == "'=cmd()"
    assert line[header.index("after")] == '{"name": "=y"}'
    told = AuditEvent.objects.filter(action="audit:exported").order_by("pk")
    assert [each.after for each in told] == [{"subject": "client"}] * 2
    operator.put_roles({Role.SUPPORT})
    assert console.get(f"{LOG}export.csv").status_code == 403
    operator.put_roles({Role.AUDITOR})
    assert console.get(f"{LOG}export.csv").status_code == 200
    assert "export.csv" in console.get(LOG).content.decode()


def test_a_nightly_job_is_named_by_what_it_does(console: Browser, by: Actor, now: datetime) -> None:
    name = "prune_audit_log"
    record("nightly:done", by=Actor.command("nightly"), now=now, target=name, target_id=name)
    text = console.get(f"{LOG}?all=").content.decode()
    assert "“Remove old audit events”" in text
    assert f">{name}<" not in text
    # A job of a release before, of which nothing is known but its name.
    record("nightly:done", by=Actor.command("nightly"), now=now, target="gone", target_id="gone")
    shown = console.get(f"{LOG}?all=").context["cl"].result_list
    console_page = admin.site.get_model_admin(AuditEvent)
    assert "finished the nightly job</a> gone" in console_page.activity(shown[0])  # type: ignore[attr-defined]
