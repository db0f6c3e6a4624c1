"""People from files as spreadsheets write them: what is read, what is refused, and that twice is once."""

from datetime import datetime
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from accounts.audit import Actor
from accounts.models import AuditEvent, Client, User
from accounts.people.importing import MOST_BYTES, FileRefused, import_people, parse, preview, read
from accounts.people.invitations import MOST_PEOPLE, Fate
from config.platform.problems.problem import InvalidRequest
from licensing.licences import create_client
from licensing.models import Plan
from tests.accounts.people.test_invitations import queued
from tests.races import race

BOM = "\N{ZERO WIDTH NO-BREAK SPACE}"
TWO = [(2, "ada@acme.test"), (3, "bert@acme.test")]


def bring(text: str, client: Client, by: Actor, now: datetime, **inputs: bool) -> Any:
    return import_people(text=text, client=client, by=by, now=now, **{"invited": True, **inputs})


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("email\nada@acme.test\nbert@acme.test\n", TWO),
        (f"{BOM}email\r\nada@acme.test\r\nbert@acme.test", TWO),
        ("E-Mail\rada@acme.test\rbert@acme.test\r", TWO),
        ("Name;E-mail address;Phone\nAda;ada@acme.test;1\nBert;bert@acme.test;2\n", TWO),
        ('"Name","Email"\n"Lovelace, Ada","ada@acme.test"\n"B ""B"" B","bert@acme.test"\n', TWO),
        ('"a;b;c",EMAIL\nx,ada@acme.test\ny,bert@acme.test\n', TWO),
        ("name\temail\nAda\tada@acme.test\nBert\tbert@acme.test\n", TWO),
        ("email, name\n ada@acme.test , Ada\nbert@acme.test, Bert\n", TWO),
        ("\n\nemail\n\nada@acme.test\n,\n", [(5, "ada@acme.test")]),
        ('email,note\nada@acme.test,"two\nlines"\nbert@acme.test,\n', [(2, "ada@acme.test"), (4, "bert@acme.test")]),
        ("name,email\nAda\n", [(2, "")]),
        ("email\n", []),
    ],
)  # fmt: skip
def test_files_are_read_as_spreadsheets_write_them(text: str, named: list[tuple[int, str]]) -> None:
    assert [tuple(each) for each in parse(read(text.encode())).named] == named


@pytest.mark.parametrize(
    ("content", "code", "sentence"),
    [
        (b"", "empty", "empty"),
        (b"\n \n", "empty", "empty"),
        (b"name\nAda\n", "no_email_column", "Line 1: No column is named"),
        (
            b"ada@acme.test\nbert@acme.test\n",
            "no_email_column",
            "first line must name the columns",
        ),
        (b"email,mail\na,b\n", "several_email_columns", "Several columns"),
        ("email\nj\xf6rg@acme.test\n".encode("latin-1"), "not_utf8", "Line 2 is not UTF-8"),
        ("email\nada@acme.test\n".encode("utf-16"), "not_utf8", "UTF-8"),
        (b"PK\x03\x04\x00\x00", "not_text", "CSV"),
        (b'email\n"ada@acme.test\nbert@acme.test\n', "not_csv", "Line 2"),
        (b"email\n" + b"x" * MOST_BYTES, "too_large", "the limit is 256 KiB"),
    ],
)
def test_another_kind_of_file_is_refused_in_plain_words(
    content: bytes, code: str, sentence: str
) -> None:
    with pytest.raises(FileRefused) as refused:
        parse(read(content))
    (fault,) = refused.value.errors
    assert (fault.pointer, fault.code) == ("/file", code)
    assert sentence in fault.detail


@pytest.mark.django_db
def test_the_same_file_again_adds_nobody_and_mails_nobody(
    organisation: Client, by: Actor, now: datetime
) -> None:
    text = "email\nada@acme.test\nBERT@acme.test\nbert@ACME.test\n"
    done = bring(text, organisation, by, now)
    assert (done.added, done.invited, done.left) == (2, 2, 1)
    assert sorted(queued()) == ["ada@acme.test", "bert@acme.test"]
    events = AuditEvent.objects.count()
    again = bring(text, organisation, by, now)
    assert (again.added, again.invited, again.left) == (0, 0, 3)
    assert len(queued()) == 2
    assert AuditEvent.objects.count() == events
    event = AuditEvent.objects.get(action="client:people_imported")
    assert event.after == {"added": 2, "invited": 2, "left": 1}


@pytest.mark.django_db
def test_people_can_be_added_without_mailing_them(
    organisation: Client, by: Actor, now: datetime
) -> None:
    assert bring("email\nada@acme.test\n", organisation, by, now, invited=False).invited == 0
    assert queued() == []
    assert User.objects.get().invited_at is None


@pytest.mark.django_db
def test_a_preview_lists_every_line_and_changes_nothing(
    user: User, organisation: Client, plan: Plan, by: Actor, now: datetime
) -> None:
    other = create_client(name="Borealis", plan=plan, by=by, now=now)
    User.objects.create_user("cleo@borealis.test", client=other)
    User.objects.create_user("waits@acme.test", client=organisation)
    text = (
        "email\nnew@acme.test\nADA@acme.test\nNEW@acme.test\nwaits@acme.test\ncleo@borealis.test\nnobody\n"
        + "x" * 260 + "@acme.test\n"
    )  # fmt: skip
    before = User.objects.count(), AuditEvent.objects.count()
    verdicts, _ = preview(text=text, client=organisation)
    assert [(each.line, each.fate) for each in verdicts] == [
        (2, Fate.NEW),
        (3, Fate.HERE),
        (4, Fate.TWICE),
        (5, Fate.WAITING),
        (6, Fate.ELSEWHERE),
        (7, Fate.FAULTY),
        (8, Fate.TOO_LONG),
    ]
    with pytest.raises(InvalidRequest) as refused:
        bring(text, organisation, by, now)
    assert [fault.pointer for fault in refused.value.errors] == ["/file/6", "/file/7", "/file/8"]
    assert (User.objects.count(), AuditEvent.objects.count()) == before


@pytest.mark.django_db
def test_a_line_without_an_email_is_named(organisation: Client, by: Actor, now: datetime) -> None:
    with pytest.raises(InvalidRequest) as refused:
        bring("name,email\nAda,ada@acme.test\nBert,\nCleo\n", organisation, by, now)
    assert [fault.detail for fault in refused.value.errors] == [
        "Line 3: has no email.",
        "Line 4: has no email.",
    ]


@pytest.mark.django_db
def test_too_many_people_are_refused(organisation: Client, by: Actor, now: datetime) -> None:
    text = "email\n" + "".join(f"p{n}@acme.test\n" for n in range(MOST_PEOPLE + 1))
    for attempt in (
        lambda: preview(text=text, client=organisation),
        lambda: bring(text, organisation, by, now),
    ):
        with pytest.raises(InvalidRequest) as refused:
            attempt()
        assert "At most 1,000 people at once" in refused.value.errors[0].detail
    assert not User.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_one_file_given_twice_at_once_is_taken_once(
    organisation: Client, by: Actor, now: datetime
) -> None:
    def go() -> Any:
        return bring("email\nada@acme.test\nbert@acme.test\n", organisation, by, now)

    results = race(go, go)
    assert not [each for each in results if isinstance(each, Exception)]
    assert sorted(each.added for each in results) == [0, 2]
    assert len(queued()) == 2


@pytest.mark.django_db
def test_the_command_follows_the_same_rule(
    organisation: Client, tmp_path: Path, by: Actor, now: datetime
) -> None:
    file = tmp_path / "people.csv"
    file.write_text("name;email\nAda;ada@acme.test\n")

    def run(*args: str, client: str = "acme") -> str:
        out = StringIO()
        call_command("import_people", str(file), "--client", client, *args, stdout=out)
        return out.getvalue()

    said = run("--dry-run")
    assert "line 2: ada@acme.test will be added" in said
    assert "ignored columns: name" in said
    assert not User.objects.exists()
    assert "1 added, 1 invited, 0 left" in run(client=str(organisation.pk))
    assert "0 added, 0 invited, 1 left" in run()
    assert AuditEvent.objects.get(action="user:created").actor == "manage.py import_people"
    with pytest.raises(CommandError, match="no client with this name"):
        run(client="Nowhere")
    file.write_text("email\nnobody\n")
    for args in ((), ("--dry-run",)):
        with pytest.raises(
            CommandError, match=r"Line 2: nobody is not an email|1 lines have errors"
        ):
            run(*args)
    file.unlink()
    with pytest.raises(CommandError, match="cannot be read"):
        run()
