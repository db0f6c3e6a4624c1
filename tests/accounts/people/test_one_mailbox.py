"""One mailbox is one person at every door, however the email is written."""

from datetime import datetime, timedelta
from io import StringIO
from typing import Any

import pytest
from django.contrib.auth.hashers import make_password
from django.core.exceptions import ValidationError
from django.core.management import call_command
from django.db import IntegrityError, connection, transaction
from django.urls import reverse
from procrastinate.contrib.django.models import ProcrastinateJob
from rest_framework.test import APIClient

from accounts.admin.fields import PersonField
from accounts.audit import Actor
from accounts.models import AuditEvent, Client, PasswordLink, User
from accounts.people import email_forms
from accounts.people.clients import set_alert_email
from accounts.people.email_forms import fill_email_forms, one_mailbox_is_one_person
from accounts.people.erasure import erase_user, preview
from accounts.people.importing import import_people
from accounts.people.invitations import Fate, Named, invite, judge
from accounts.people.one_time_passwords import find_one_time, set_one_time_password
from accounts.people.password_links import LinkSpent, request_reset, send_reset
from accounts.people.roles import add_by_code
from accounts.people.users import add_user, change_email
from accounts.sessions.known_places import limits_of_operator
from accounts.sessions.refusals import record_refusal
from accounts.sessions.sign_in import Device, InvalidCredentials, account_of, sign_in
from accounts.worker import tasks
from config.console.navigation import page_of
from config.platform.problems.problem import InvalidRequest
from tests.conftest import PASSWORD, Browser
from tests.triggers import without_triggers

pytestmark = pytest.mark.django_db
# By the number of a public report of the kind: how it is stored, and how it is typed.
REPORTS = [
    pytest.param("lea@bücher.example", "lea@xn--bcher-kva.example", id="letters"),
    pytest.param(
        "test@exümple.org", "test@xn--exmple-4ya.org", id="mailcow/mailcow-dockerized#7395"
    ),
    pytest.param("test@xn--dmin-moa0i.org", "Test@DÖMÄIN.org", id="Mailu/Mailu#446"),
    pytest.param("info@dömäin.com", "info@do\u0308ma\u0308in.com", id="directus/v8-archive#534"),
    pytest.param(
        "max@maßanfertigung.de", "max@xn--maanfertigung-cdb.de", id="keycloak/keycloak#18409"
    ),
    pytest.param(
        "test@παράδειγμα.δοκιμή", "test@xn--hxajbheg2az3al.xn--jxalpdlp", id="mozilla/persona#1370"
    ),
    pytest.param("me@bücher.example", "me@ｂücher。example", id="flora-pm/flora-server#561"),
]
LETTERS, LABEL, DECOMPOSED = (
    "lea@bücher.example",
    "lea@xn--bcher-kva.example",
    "lea@bu\u0308cher.example",
)
OTHERS = [
    "lea@buecher.example",
    "lea@bucher.example",
    "léa@bücher.example",
    "lea@bücher.example.org",
]


@pytest.fixture
def lea(user: User, by: Actor, now: datetime) -> User:
    return change_email(user_id=user.pk, email=LETTERS, reason="Married.", by=by, now=now)


@pytest.fixture
def younger(lea: User, organisation: Client) -> User:
    """A second person of one mailbox, whom a process of the release before has added."""
    with pytest.raises(IntegrityError), transaction.atomic():
        User.objects.create_user(LABEL, client=organisation)
    person = User(email=LABEL, client=organisation, password=make_password("of the younger"))
    added_before(person)
    return person


def added_before(person: User) -> None:
    """Stores a person as the release before does, whose model knows no form."""
    given = {
        each.column: each.get_db_prep_save(getattr(person, each.attname), connection)
        for each in User._meta.concrete_fields
        if each.name != "email_form"
    }
    names, marks = ", ".join(given), ", ".join(["%s"] * len(given))
    with connection.cursor() as cursor:
        cursor.execute(f"INSERT INTO accounts_user ({names}) VALUES ({marks})", [*given.values()])


def warned() -> list[str]:
    return [str(each.msg) for each in one_mailbox_is_one_person(None, ["default"])]


@pytest.mark.usefixtures("signing_key")
@pytest.mark.parametrize(("stored", "typed"), REPORTS)
def test_sign_in_reset_and_console_find_the_person_of_another_writing(
    api: APIClient, user: User, by: Actor, now: datetime, stored: str, typed: str
) -> None:
    change_email(user_id=user.pk, email=stored, reason="Married.", by=by, now=now)
    for email in (stored, typed, typed.upper()):
        given = {"email": email, "password": PASSWORD}
        assert api.post("/v1/auth/login", given, format="json").status_code == 200
    assert send_reset(email=typed.lower(), address=None, request_id="r", now=now)
    assert PasswordLink.objects.get(kind="reset").user == user
    User.objects.filter(pk=user.pk).update(is_staff=True, is_superuser=True, client=None)
    guest = Browser()
    assert guest.post("/admin/login/", {"username": typed, "password": PASSWORD}).status_code == 302
    assert guest.session["_auth_user_id"] == str(user.pk)


@pytest.mark.usefixtures("signing_key")
@pytest.mark.parametrize("typed", [*OTHERS, "lea", "", "@bücher.example", "lea@"])
def test_no_other_email_is_hers(lea: User, now: datetime, typed: str) -> None:
    with pytest.raises(InvalidCredentials):
        sign_in(email=typed, password=PASSWORD, device=Device(), now=now)
    assert not send_reset(email=typed, address=None, request_id="r", now=now)


@pytest.mark.usefixtures("signing_key")
def test_the_console_finds_the_people_that_the_api_finds(
    organisation: Client, operator: User, now: datetime
) -> None:
    """Django's own field would make of the ligature two letters, and so another person."""
    User.objects.filter(pk=operator.pk).update(email="fin@shell.test", email_form="fin@shell.test")
    guest = Browser()
    given = {"username": "ﬁn@shell.test", "password": PASSWORD}
    assert guest.post("/admin/login/", given).status_code == 200
    assert "_auth_user_id" not in guest.session
    assert guest.post("/admin/login/", {**given, "username": "fin@shell.test"}).status_code == 302


@pytest.mark.usefixtures("lea")
def test_a_sign_in_takes_one_query_whatever_was_typed(django_assert_num_queries: Any) -> None:
    for typed in (LETTERS, LABEL, DECOMPOSED, "nobody@bücher.example"):
        with django_assert_num_queries(1):
            account_of(typed, device=Device(fingerprint="desk-7", address="203.0.113.7"))


@pytest.mark.usefixtures("signing_key")
def test_failures_count_against_one_account_in_every_writing(
    api: APIClient, lea: User, settings: Any
) -> None:
    settings.RATE_LIMITS = {"auth.account": "3/m", "auth.ip": "1000/m"}
    codes = [
        api.post("/v1/auth/login", {"email": each, "password": "wrong"}, format="json").status_code
        for each in (LETTERS, LABEL, DECOMPOSED, LABEL.upper())
    ]
    assert codes == [401, 401, 401, 429]
    guest = Browser()
    answer = guest.post("/admin/login/", {"username": LABEL, "password": PASSWORD})
    assert answer.status_code == 429 or answer.context["form"].errors


def test_known_places_are_those_of_the_person(operator: User, by: Actor, now: datetime) -> None:
    change_email(user_id=operator.pk, email=LETTERS, reason="Married.", by=by, now=now)
    AuditEvent.objects.create(
        at=now, action="operator:signed_in", actor=LETTERS, address="203.0.113.7"
    )
    known = limits_of_operator(email=LETTERS, address="203.0.113.7")
    assert len(known) == 1
    for typed in (LABEL, DECOMPOSED):
        assert limits_of_operator(email=typed, address="203.0.113.7") == known
    assert len(limits_of_operator(email=LABEL, address="198.51.100.9")) == 2


def test_a_refused_sign_in_is_audited_for_the_person(lea: User, now: datetime) -> None:
    assert record_refusal(email=LABEL, address=None, request_id="r", at=now)
    assert AuditEvent.objects.get(action="session:refused").target_id == str(lea.pk)
    Browser().post("/admin/login/", {"username": DECOMPOSED, "password": "wrong"})
    event = AuditEvent.objects.get(action="operator:sign_in_refused")
    assert event.target == LETTERS


def test_a_request_to_reset_leaves_the_job_of_the_release_before() -> None:
    request_reset(email=LETTERS.upper(), address=None, request_id="r")
    (job,) = ProcrastinateJob.objects.filter(task_name="accounts.send_reset")
    assert job.args == {"email": LETTERS, "address": None, "request_id": "r"}


@pytest.mark.parametrize("email", [LETTERS, LABEL, DECOMPOSED, LABEL.upper()])
class TestNobodyIsAddedTwice:
    def test_adding_a_person_refuses_a_known_mailbox(
        self, lea: User, organisation: Client, by: Actor, now: datetime, email: str
    ) -> None:
        with pytest.raises(InvalidRequest) as refusal:
            add_user(email=email, client=organisation, by=by, now=now)
        assert [fault.code for fault in refusal.value.errors] == ["unique"]

    def test_adding_an_operator_refuses_a_known_mailbox(
        self, lea: User, operator: User, now: datetime, email: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        by = Actor(name=operator.email, id=operator.pk)
        with pytest.raises(InvalidRequest) as refusal:
            add_by_code(email=email, roles=["support"], reason="New.", by=by, now=now)
        assert [fault.code for fault in refusal.value.errors] == ["unique"]
        monkeypatch.setenv("DJANGO_SUPERUSER_PASSWORD", "another good horse battery")
        with pytest.raises(Exception, match="taken"):
            call_command("createsuperuser", email=email, interactive=False)

    def test_invitations_and_imports_skip_a_known_mailbox(
        self, lea: User, organisation: Client, by: Actor, now: datetime, email: str
    ) -> None:
        (verdict,) = judge([Named(1, email)], client=organisation)
        assert (verdict.fate, verdict.user_id) == (Fate.HERE, lea.pk)
        done = invite(named=[Named(1, email)], client=organisation, by=by, now=now)
        assert (done.added, done.invited) == (0, 0)
        text = f"email\n{email}\n"
        assert (
            import_people(text=text, client=organisation, invited=True, by=by, now=now).added == 0
        )
        assert User.objects.count() == 1

    def test_changing_an_email_refuses_a_known_mailbox(
        self, lea: User, organisation: Client, by: Actor, now: datetime, email: str
    ) -> None:
        other = add_user(email="bob@acme.test", client=organisation, by=by, now=now)
        with pytest.raises(InvalidRequest) as refusal:
            change_email(user_id=other.pk, email=email, reason="Married.", by=by, now=now)
        assert [fault.code for fault in refusal.value.errors] == ["unique"]
        other.refresh_from_db()
        assert (other.email, other.email_form) == ("bob@acme.test", "bob@acme.test")


@pytest.mark.parametrize("again", [LETTERS, LABEL, DECOMPOSED, LABEL.upper()])
def test_an_operator_who_is_added_again_at_once_gets_another_code(
    operator: User, now: datetime, again: str
) -> None:
    by = Actor(name=operator.email, id=operator.pk)
    asked: Any = {"roles": ["support"], "reason": "New.", "by": by, "now": now}
    first, second = (add_by_code(email=email, **asked) for email in (LETTERS, again))
    assert User.objects.exclude(pk=operator.pk).get().email == LETTERS
    assert find_one_time(email=again, password=second, now=now)
    with pytest.raises(LinkSpent):
        find_one_time(email=again, password=first, now=now)


def test_a_list_names_a_mailbox_once(organisation: Client) -> None:
    verdicts = judge([Named(1, LETTERS), Named(2, LABEL), Named(3, OTHERS[0])], client=organisation)
    assert [each.fate for each in verdicts] == [Fate.NEW, Fate.TWICE, Fate.NEW]


def test_a_person_may_have_the_own_mailbox_written_otherwise(
    lea: User, by: Actor, now: datetime
) -> None:
    change_email(user_id=lea.pk, email=LABEL, reason="Another spelling.", by=by, now=now)
    lea.refresh_from_db()
    assert (lea.email, lea.email_form) == (LABEL, LABEL)


def test_commands_and_pages_find_the_person(lea: User, console: Browser) -> None:
    for typed in (LETTERS, LABEL, DECOMPOSED):
        said = StringIO()
        call_command("revoke_tokens", typed, reason="Lost.", stdout=said)
        assert LETTERS in said.getvalue()
        assert PersonField().clean(typed) == lea
        answer = console.get(reverse("admin:search"), {"q": typed})
        assert (answer.status_code, answer["Location"]) == (302, page_of(lea))
        for page in ("accounts_user", "accounts_session", "usage_override", "accounts_operator"):
            answer = console.get(reverse(f"admin:{page}_changelist"), {"q": typed})
            assert answer.status_code == 200
            expected = {"accounts_user": 1}.get(page, 0)
            assert answer.context["cl"].result_count == expected, page
    with pytest.raises(ValidationError):
        PersonField().clean(OTHERS[0])


def test_a_one_time_password_is_found_by_any_writing(lea: User, by: Actor, now: datetime) -> None:
    made = set_one_time_password(user_id=lea.pk, reason="No mail.", by=by, now=now)
    for typed in (LETTERS, LABEL, f" {DECOMPOSED} "):
        assert find_one_time(email=typed, password=made.password, now=now)


def test_erasing_takes_the_form_and_the_mail_of_every_writing(
    lea: User, by: Actor, now: datetime
) -> None:
    assert lea.client_id is not None
    set_alert_email(client_id=lea.client_id, email=LABEL, by=by, now=now)
    for typed in (LETTERS, LABEL):
        request_reset(email=typed, address=None, request_id="r")
    assert preview(user_id=lea.pk)["queued mails"] >= 2
    with pytest.raises(InvalidRequest) as refusal:
        erase_user(user_id=lea.pk, email=LABEL, reason=f"{LABEL} asked.", by=by, now=now)
    assert [fault.pointer for fault in refusal.value.errors] == ["/reason"]
    erase_user(user_id=lea.pk, email=DECOMPOSED, reason="She asked.", by=by, now=now)
    lea.refresh_from_db()
    assert (lea.email_form, Client.objects.get(pk=lea.client_id).alert_email) == (None, "")
    assert not ProcrastinateJob.objects.filter(task_name="accounts.send_reset").exists()
    assert fill_email_forms() == 0, "an erased person has no form"


class TestRowsOfTheReleaseBefore:
    @pytest.mark.usefixtures("signing_key")
    def test_a_person_without_a_form_signs_in_as_before(self, lea: User, now: datetime) -> None:
        User.objects.update(email_form=None)
        assert sign_in(email=LETTERS.upper(), password=PASSWORD, device=Device(), now=now)
        assert send_reset(email=LETTERS, address=None, request_id="r", now=now)

    def test_forms_are_filled_in_batches_and_a_second_time_without_harm(
        self, organisation: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(email_forms, "PEOPLE_AT_A_TIME", 2)
        emails = ["a@acme.test", LETTERS, "c@i❤.ws", "d@acme.test", "é@acme.test"]
        for each in emails:
            added_before(User(email=each, client=organisation, password="!"))
        assert fill_email_forms() == 5
        assert set(User.objects.values_list("email_form", flat=True)) == {
            "a@acme.test", LABEL, "c@i❤.ws", "d@acme.test", "é@acme.test",
        }  # fmt: skip
        assert fill_email_forms() == 0

    def test_the_worker_fills_them_every_minute(self, lea: User) -> None:
        User.objects.update(email_form=None)
        tasks.fill_email_forms(timestamp=0)
        assert User.objects.get().email_form == LABEL

    def test_an_email_that_such_a_process_changes_takes_its_form_along(self, lea: User) -> None:
        """Whoever has the old mailbox could else reset the password."""
        User.objects.filter(pk=lea.pk).update(email="new@acme.test")
        lea.refresh_from_db()
        assert lea.email_form is None
        assert not send_reset(email=LABEL, address=None, request_id="r", now=lea.created_at)
        assert fill_email_forms() == 1
        lea.refresh_from_db()
        assert lea.email_form == "new@acme.test"

    def test_the_older_of_a_pair_has_the_form_and_each_is_found_by_its_own_text(
        self, lea: User, younger: User
    ) -> None:
        assert fill_email_forms() == 0
        assert list(User.objects.by_email(LABEL)) == [younger, lea]
        for typed, person in ((LETTERS, lea), (LABEL.upper(), younger), (DECOMPOSED, lea)):
            assert User.objects.by_email(typed).first() == person

    def test_the_older_gets_the_form_also_where_the_younger_had_it(
        self, lea: User, younger: User
    ) -> None:
        User.objects.filter(pk=lea.pk).update(email_form=None)
        User.objects.filter(pk=younger.pk).update(email_form=LABEL)
        assert fill_email_forms() == 1
        forms = dict(User.objects.values_list("pk", "email_form"))
        assert forms == {lea.pk: LABEL, younger.pk: None}

    def test_a_pair_without_any_form_is_one_with_the_older(self, lea: User, younger: User) -> None:
        User.objects.update(email_form=None)
        User.objects.filter(pk=lea.pk).update(created_at=lea.created_at + timedelta(days=1))
        assert fill_email_forms() == 1
        assert User.objects.get(email_form=LABEL) == younger

    def test_the_younger_gets_the_form_once_the_older_has_left(
        self, lea: User, younger: User, by: Actor, now: datetime
    ) -> None:
        change_email(user_id=lea.pk, email="new@acme.test", reason="Married.", by=by, now=now)
        assert fill_email_forms() == 1
        assert User.objects.get(email_form=LABEL) == younger

    def test_the_younger_goes_on_and_is_changed_by_rules(
        self, lea: User, younger: User, by: Actor, now: datetime
    ) -> None:
        younger = User.objects.get(pk=younger.pk)
        younger.is_active = False
        younger.save()
        # Not the older one, who was not meant.
        assert not send_reset(email=LABEL, address=None, request_id="r", now=now)
        changed = change_email(
            user_id=younger.pk, email="other@acme.test", reason="A pair.", by=by, now=now
        )
        assert changed.email_form == "other@acme.test"
        assert warned() == []

    def test_the_check_names_pairs_and_nobody_else(
        self, lea: User, younger: User, organisation: Client
    ) -> None:
        added_before(User(email="new@acme.test", client=organisation, password="!"))
        names = f"{LETTERS} ({lea.pk}) and {LABEL} ({younger.pk})"
        assert warned() == [f"Two people have one mailbox: {names}."]
        User.objects.update(email_form=None)
        assert warned() == [f"Two people have one mailbox: {names}."]
        said = StringIO()
        call_command("check", database=["default"], stderr=said, stdout=said)
        assert names in said.getvalue()

    def test_the_check_passes_before_the_migration(self, lea: User) -> None:
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE accounts_user RENAME email_form TO another")
            assert warned() == []
            cursor.execute("ALTER TABLE accounts_user RENAME another TO email_form")

    def test_a_batch_waits_for_the_next_run_while_somebody_of_it_is_added(
        self, lea: User, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        User.objects.update(email_form=None)

        def lost(*_: Any) -> int:
            raise IntegrityError

        with monkeypatch.context() as patch:
            patch.setattr(email_forms, "_put_forms", lost)
            assert fill_email_forms() == 0
        assert fill_email_forms() == 1


def test_no_two_people_have_one_form(lea: User, organisation: Client) -> None:
    with without_triggers():
        User.objects.filter(pk=lea.pk).update(email_form=LABEL)
    with pytest.raises(IntegrityError), transaction.atomic():
        User.objects.create(email=DECOMPOSED, client=organisation)
