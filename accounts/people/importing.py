"""Imports people from a CSV file, for the console and the command.

A file is imported as a whole or not at all. Importing it again changes nothing: existing people receive no second
invitation.
"""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from accounts.audit import Actor, record
from accounts.models import Client
from accounts.people.invitations import (
    Named,
    Outcome,
    Verdict,
    add_new,
    check_number,
    checked,
    invite_again,
    judge,
    repeats,
)
from accounts.seats import within_seats
from config.platform.problems.problem import Fault, InvalidRequest

KIB = 1024
MOST_BYTES = 256 * KIB
DELIMITERS = ",;\t"
# Names of the column with the addresses, compared without case, blanks and hyphens.
EMAIL_NAMES = {"email", "mail", "emailaddress", "mailaddress", "eaddress"}


class FileRefused(InvalidRequest):
    """A file that cannot be imported; each of ``errors`` names its line."""

    default_detail = "This file cannot be imported."


@dataclass(frozen=True, slots=True, kw_only=True)
class Sheet:
    """The contents of a file: emails with their lines, and the names of the ignored columns."""

    named: Sequence[Named]
    ignored: Sequence[str]


def read(content: bytes) -> str:
    """Decodes a file. Raises ``FileRefused`` if it is too large or not UTF-8 text."""
    if len(content) > MOST_BYTES:
        raise _refused(
            "too_large",
            f"The file is {len(content) // KIB:,} KiB; the limit is {MOST_BYTES // KIB} KiB. "
            "Keep only the column with the emails, or split the file.",
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
        raise _refused("not_text", "This is not text. Save the sheet as “CSV UTF-8” and try again.")
    return text


def parse(text: str) -> Sheet:
    """Reads the emails of a file with a header line. Raises ``FileRefused`` for invalid CSV or no email column."""
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
            "not_csv", f"Line {begins}: unbalanced quotation marks, or a cell that is too long."
        ) from None
    if column is None:
        raise _refused("empty", "The file is empty.")
    return Sheet(named=named, ignored=ignored)


def preview(*, text: str, client: Client) -> tuple[list[Verdict], Sheet]:
    """The verdict of :func:`import_people` on each line; changes nothing. Raises ``InvalidRequest``."""
    sheet = parse(text)
    check_number(sheet.named, field="file")
    return judge(sheet.named, client=client), sheet


def import_people(*, text: str, client: Client, invited: bool, by: Actor, now: datetime) -> Outcome:
    """Adds the new people of a file to a client, and mails them an invitation if ``invited``.

    Adds all or nobody: raises ``FileRefused``, ``InvalidRequest`` with a fault for each faulty line, and
    ``SeatsExhausted``.
    """
    sheet = parse(text)
    with within_seats(client, by=by, now=now):
        verdicts = checked(sheet.named, client=client, field="file")
        added = add_new(verdicts, client=client, by=by, now=now)
        sent = invite_again(user_ids=added, by=by, now=now) if invited else 0
        left, repeated = len(verdicts) - len(added), repeats(verdicts)
        outcome = Outcome(added=len(added), invited=sent, left=left, repeated=repeated)
        if added:
            after = {"added": outcome.added, "invited": sent, "left": outcome.left}
            record("client:people_imported", client, by=by, now=now, after=after)
    return outcome


def _delimiter(text: str) -> str:
    """Guesses the delimiter by the first line that is not blank."""
    head = next((line for line in text.splitlines() if line.strip()), "")
    outside_quotes = "".join(head.split('"')[::2])
    return max(DELIMITERS, key=outside_quotes.count)


def _columns(header: list[str], line: int) -> tuple[int, list[str]]:
    """The number of the column with the emails, and the names of the other columns."""
    found = [
        number
        for number, name in enumerate(header)
        if "".join(filter(str.isalnum, name)).lower() in EMAIL_NAMES
    ]
    if len(found) != 1:
        how = "No column is" if not found else "Several columns are"
        raise _refused(
            "no_email_column" if not found else "several_email_columns",
            f"Line {line}: {how} named “email”. The first line must name the columns, one of them “email”.",
        )
    return found[0], [name.strip() for name in header if name.strip() and name != header[found[0]]]


def _refused(code: str, sentence: str) -> FileRefused:
    return FileRefused(errors=[Fault("/file", code, sentence)])
