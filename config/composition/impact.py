"""The impact of an action beyond its own app: the number of people affected before, and the outcome after."""

from datetime import datetime, timedelta

from accounts.models import Session, User
from config.console.tables import Column, Row, Table
from config.console.template_tags import counted
from licensing.models import Licence, Standing
from llmproxy.models import PersonalKey
from usage.models import RunningCall

LATELY = timedelta(hours=1)
SUSPENDING = {"licensing.licence_status", "licensing.licence_suspend"}


def affected(right: str, row: object, *, now: datetime) -> Table | None:
    """Returns a table of the people, calls and keys an action would affect; None where its own sentences suffice."""
    if right not in SUSPENDING or not isinstance(row, Licence):
        return None
    people = User.objects.filter(client=row.client_id, erased_at=None, is_active=True)
    sessions = Session.objects.filter(user__client=row.client_id).live(at=now)
    active = sessions.filter(last_used_at__gt=now - LATELY).values("user").distinct().count()
    keys = PersonalKey.objects.filter(user__client=row.client_id, ended_at=None, expires_at__gt=now)
    numbers = (
        ("People", people.count(), f"{active:,} active in the last hour"),
        ("Running calls", _running(row), "are ended and charged so far"),
        ("Personal keys", keys.count(), "refused, not deleted"),
        ("Apps", len(row.all_entitlements), "refused until the client is resumed"),
        ("Sessions", sessions.count(), "stay signed in"),
    )
    columns = (Column("Affected"), Column("Number", kind="number"), Column("A suspension means"))
    return Table(columns, [Row(cells) for cells in numbers], is_plain=True)


def outcome_note(right: str, row: object) -> str:
    """Returns a sentence on the effects of an action; "" where its own message suffices."""
    if right not in SUSPENDING or not isinstance(row, Licence):
        return ""
    row.refresh_from_db()
    if row.status != Standing.SUSPENDED:
        return ""
    people = User.objects.filter(client=row.client_id, erased_at=None, is_active=True).count()
    calls = _running(row)
    ends = counted(calls, "running call ends", "running calls end")
    ending = f" {ends} within 15 seconds." if calls else ""
    cannot = counted(people, "person cannot", "people cannot")
    return f"{cannot} call models until you resume the client.{ending}"


def _running(licence: Licence) -> int:
    return RunningCall.objects.filter(client_id=licence.client_id).count()
