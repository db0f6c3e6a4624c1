"""Rules for notices to shells: the least version, a message, and the source of their updates.

A row is a client's licence, or the one of the service. Which versions and channels there are is the rule of releases.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import uuid4

from django.db import transaction

from accounts.audit import Actor, check_reason, record
from config.platform.problems.problem import Fault, InvalidRequest, instant
from config.platform.text.versions import NotAVersion, Version
from licensing.models import Licence, ServiceNotice, ShellNotice


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
    return _set(licence_id, "minimum_set", {"minimum_version": minimum}, reason, by=by, now=now)


def set_shell(
    *, licence_id: int | None, channel: str, version: str, reason: str, by: Actor, now: datetime
) -> ShellNotice:
    """Sets the channel that shells update from and the version that they are pinned to; "" for their own choice."""
    given = {"shell_channel": channel, "shell_version": version}
    return _set(licence_id, "shell_set", given, reason, by=by, now=now)


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

    Raises ``InvalidRequest`` without a reason, for an end in the past, and for a text with control characters.
    """
    text = " ".join(text.split())
    faults = []
    if until is not None and until <= now:
        faults.append(Fault("/until", "invalid", "This end has passed."))
    if not text.isprintable():
        faults.append(Fault("/text", "invalid", "A message is plain text, in one paragraph."))
    if faults:
        raise InvalidRequest(errors=faults)
    given = {"message_text": text, "message_level": level if text else ""}
    given["message_until"] = until if text else None
    return _set(licence_id, "message_set", given, reason, by=by, now=now)


def _set(
    licence_id: int | None,
    action: str,
    given: Mapping[str, Any],
    reason: str,
    *,
    by: Actor,
    now: datetime,
) -> ShellNotice:
    check_reason(reason)
    with transaction.atomic():
        row = _locked(licence_id)
        before = {name: getattr(row, name) for name in given}
        changed = dict(given)
        if given.get("message_text", row.message_text) != row.message_text:
            changed["message_id"] = uuid4() if given["message_text"] else None
        for name, value in changed.items():
            setattr(row, name, value)
        row.save(update_fields=[*changed])
        kind, target = ("licence", row.client) if isinstance(row, Licence) else ("service", row)
        record(
            f"{kind}:{action}",
            target,
            by=by,
            now=now,
            reason=reason,
            before=_audited(before),
            after=_audited(given),
        )
    return row


def _locked(licence_id: int | None) -> Licence | ServiceNotice:
    if licence_id is None:
        ServiceNotice.objects.get_or_create()
        return ServiceNotice.objects.select_for_update(no_key=True).get()
    rows = Licence.objects.select_related("client").select_for_update(no_key=True, of=("self",))
    return rows.get(pk=licence_id)


def _audited(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values that say something, with instants as the audit log has them."""
    return {
        name: instant(value) if isinstance(value, datetime) else value
        for name, value in values.items()
        if value
    }
