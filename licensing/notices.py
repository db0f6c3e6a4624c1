"""Rules for notices to shells: the least version, a message, and the source of their updates.

A row is a client's licence, or the one of the service. Which versions and channels there are is the rule of releases.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Any
from uuid import uuid4

from django.db import transaction

from accounts.audit import Actor, check_reason, reason_faults, record
from accounts.models import Client
from config.platform.problems.problem import Fault, InvalidRequest, instant
from config.platform.text.versions import NotAVersion, Version
from licensing.models import Licence, ServiceNotice, ShellNotice
from licensing.models.notices import MAX_MESSAGE

# Words of Persian and Indian scripts and many emoji have them; unlike others of control they are no danger.
_JOINERS = dict.fromkeys(map(ord, "\u200c\u200d"))


def is_below(version: str, minimum: str) -> bool:
    """Returns whether a version is older than the minimum; False for what is no version."""
    try:
        return Version.parse(version) < Version.parse(minimum)
    except NotAVersion:
        return False


def service_notice() -> ServiceNotice:
    """Returns the notice to all shells, empty without a row."""
    return ServiceNotice.objects.first() or ServiceNotice()


def set_minimum_version(
    *, licence_id: int | None, minimum: str, reason: str, by: Actor, now: datetime
) -> ShellNotice:
    """Sets the least version of a client's shells, or of all shells (None); "" for none. Needs a reason."""
    check_reason(reason)
    with transaction.atomic():
        row, target, change = _changed(licence_id, {"minimum_version": minimum})
        record(
            "licence:minimum_set" if isinstance(row, Licence) else "service:minimum_set",
            target,
            by=by,
            now=now,
            reason=reason,
            **change,
        )
    return row


def set_shell(
    *, licence_id: int | None, channel: str, version: str, reason: str, by: Actor, now: datetime
) -> ShellNotice:
    """Sets the channel that shells update from and the version that they are pinned to; "" for their own choice."""
    check_reason(reason)
    given = {"shell_channel": channel, "shell_version": version}
    with transaction.atomic():
        row, target, change = _changed(licence_id, given)
        record(
            "licence:shell_set" if isinstance(row, Licence) else "service:shell_set",
            target,
            by=by,
            now=now,
            reason=reason,
            **change,
        )
    return row


def set_message(
    *,
    licence_id: int | None,
    text: str,
    level: str,
    until: datetime | None,
    reason: str,
    by: Actor,
    now: datetime,
) -> ShellNotice:
    """Sets the message to a client's people, or to all (None); "" removes it. Each text is a message of its own.

    Raises ``InvalidRequest`` without a reason, for an end in the past, for an unknown level, and for a text that is too
    long or has control characters, those of direction among them.
    """
    text = " ".join(text.split())
    faults = reason_faults(reason)
    if until is not None and until <= now:
        faults.append(Fault("/until", "invalid", "This date has passed."))
    if level not in ShellNotice.Level.values:
        faults.append(Fault("/level", "invalid", "There is no such level."))
    if len(text) > MAX_MESSAGE:
        faults.append(Fault("/text", "max_length", f"At most {MAX_MESSAGE} characters."))
    if not text.translate(_JOINERS).isprintable():
        faults.append(
            Fault("/text", "invalid", "A message is plain text, without control characters.")
        )
    if faults:
        raise InvalidRequest(errors=faults)
    given = {
        "message_text": text,
        "message_level": level if text else "",
        "message_until": until if text else None,
    }
    with transaction.atomic():
        row, target, change = _changed(licence_id, given)
        record(
            "licence:message_set" if isinstance(row, Licence) else "service:message_set",
            target,
            by=by,
            now=now,
            reason=reason,
            **change,
        )
    return row


def _changed(
    licence_id: int | None, given: dict[str, Any]
) -> tuple[ShellNotice, Client | ServiceNotice, dict[str, Any]]:
    """Writes the columns of a notice; returns its row, and the target and the change of its audit event."""
    row = _locked(licence_id)
    change = {"before": _audited(row, given), "after": {}}
    if given.get("message_text", row.message_text) != row.message_text:
        row.message_id = uuid4() if given["message_text"] else None
    for name, value in given.items():
        setattr(row, name, value)
    row.save(update_fields=["message_id", *given])
    change["after"] = _audited(row, given)
    return row, row.client if isinstance(row, Licence) else row, change


def _locked(licence_id: int | None) -> Licence | ServiceNotice:
    if licence_id is None:
        ServiceNotice.objects.get_or_create()
        return ServiceNotice.objects.select_for_update(no_key=True).get()
    rows = Licence.objects.select_related("client").select_for_update(no_key=True, of=("self",))
    return rows.get(pk=licence_id)


def _audited(row: ShellNotice, names: Iterable[str]) -> dict[str, Any]:
    """The columns that have a value, with instants as the audit log has them."""
    values = {name: getattr(row, name) for name in names}
    return {
        name: instant(value) if isinstance(value, datetime) else value
        for name, value in values.items()
        if value
    }
