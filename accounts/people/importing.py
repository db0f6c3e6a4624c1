"""People from a CSV file: read, judged and added by one rule, which the console and the command share.

A file is taken as a whole or not at all, and giving it again does nothing: who is there already is left as they
are and is sent no second invitation.
"""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db import transaction

from accounts.audit import Actor, record
from accounts.models import Client
from accounts.people.invitations import (
    Named,
    Outcome,
    Verdict,
    add_new,
    check_number,
    invite_again,
    judge,
    judge_alone,
)
from config.api.problems import Fault, InvalidRequest

KIB = 1024
MOST_BYTES = 256 * KIB
DELIMITERS = ",;\t"
# What the column with the addresses may be called; case, blanks and hyphens do not count.
EMAIL_NAMES = {"email", "mail", "emailaddress", "mailaddress", "eaddress"}


class FileRefused(InvalidRequest):
    """The file cannot be read as people; ``errors`` say why, each with its line."""

    default_detail = "This file cannot be imported."


@dataclass(frozen=True, slots=True, kw_only=True)
class Sheet:
    """What a file says: emails with their lines, and the names of columns that are not looked at."""

    named: Sequence[Named]
    ignored: Sequence[str]


def read(content: bytes) -> str:
    """The text of a file. Raises ``FileRefused`` where it is too large, or no text in UTF-8."""
    if len(content) > MOST_BYTES:
        raise _refused(
            "too_large",
            f"The file has {len(content) // KIB:,} KiB; at most {MOST_BYTES // KIB} KiB are taken. "
            "Keep the column with the emails and split the rest.",
        )
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise _refused(
            "not_utf8",
            f"Line {line} is not UTF-8. Save the file as “CSV UTF-8” and try again.",
        ) from None
    if "\0" in text:
        raise _refused("not_text", "This is no text. Save the sheet as “CSV UTF-8” and try again.")
    return text


def parse(text: str) -> Sheet:
    """The emails of a file with a header line. Raises ``FileRefused`` where it has no such column or is no CSV."""
    rows = csv.reader(
        io.StringIO(text, newline=""),
        delimiter=_delimiter(text),
        skipinitialspace=True,
        strict=True,
    )
    named: list[Named] = []
    column: int | None = None
    ignored: list[str] = []
    begins = 1
    try:
        for row in rows:
            line, begins = begins, rows.line_num + 1
            if not any(cell.strip() for cell in row):
                continue
            if column is None:
                column, ignored = _columns(row, line)
                continue
            named.append(Named(line, row[column].strip() if column < len(row) else ""))
    except csv.Error:
        raise _refused(
            "not_csv", f"Line {begins}: quotation marks that do not match, or too long a cell."
        ) from None
    if column is None:
        raise _refused("empty", "The file is empty.")
    return Sheet(named=named, ignored=ignored)


def foresee(*, text: str, client: Client) -> tuple[list[Verdict], Sheet]:
    """What :func:`import_people` would do with each line. Changes nothing. Raises ``InvalidRequest``."""
    sheet = parse(text)
    check_number(sheet.named, field="file")
    return judge(sheet.named, client=client), sheet


def import_people(*, text: str, client: Client, invited: bool, by: Actor, now: datetime) -> Outcome:
    """Adds whoever of a file is new to a client, and mails them an invitation if they are to be ``invited``.

    All or nobody. Raises ``FileRefused``, and ``InvalidRequest`` with a fault for each line that cannot be taken.
    """
    sheet = parse(text)
    with transaction.atomic():
        verdicts = judge_alone(sheet.named, client=client, field="file")
        added = add_new(verdicts, client=client, by=by, now=now)
        sent = invite_again(user_ids=added, by=by, now=now) if invited else 0
        outcome = Outcome(added=len(added), invited=sent, left=len(verdicts) - len(added))
        if added:
            record(
                "client:people_imported",
                by=by,
                now=now,
                target=client,
                after={"added": outcome.added, "invited": sent, "left": outcome.left},
            )
    return outcome


def _delimiter(text: str) -> str:
    """What stands between the columns, by the first line that has anything in it."""
    head = next((line for line in text.splitlines() if line.strip()), "")
    outside_quotes = "".join(head.split('"')[::2])
    return max(DELIMITERS, key=outside_quotes.count)


def _columns(header: list[str], line: int) -> tuple[int, list[str]]:
    """Where the emails stand, and what the other columns are called."""
    found = [
        number
        for number, name in enumerate(header)
        if "".join(filter(str.isalnum, name)).lower() in EMAIL_NAMES
    ]
    if len(found) != 1:
        how = "No column is" if not found else "Several columns are"
        raise _refused(
            "no_email_column" if not found else "several_email_columns",
            f"Line {line}: {how} called “email”. The first line has to name the columns, one of them “email”.",
        )
    return found[0], [name.strip() for name in header if name.strip() and name != header[found[0]]]


def _refused(code: str, sentence: str) -> FileRefused:
    return FileRefused(errors=[Fault("/file", code, sentence)])
