"""Operators' control of app versions: move channels, pin, unpin, withdraw."""

from datetime import datetime
from uuid import UUID

from django.db import transaction

from accounts.audit import Actor, check_reason, record
from config.platform.problems.problem import Fault, InvalidRequest
from releases.models import AppChannel, AppPin, AppVersion, MicroApp


class StillOffered(InvalidRequest):
    """Refuses to withdraw a version that a channel or a pin names."""

    default_detail = "Move the channels and remove the pins that name this version first."


def move_channel(
    *, name: str, version_id: int, reason: str, by: Actor, now: datetime
) -> AppChannel:
    """Makes a channel offer a version, newer or older than the one before."""
    check_reason(reason)
    with transaction.atomic():
        version = _offerable(version_id)
        return move_under_lock(
            app=version.app, name=name, version=version, reason=reason, by=by, now=now
        )


def move_under_lock(
    *, app: MicroApp, name: str, version: AppVersion, reason: str, by: Actor, now: datetime
) -> AppChannel:
    """Moves a channel; the caller holds the lock of the app's row."""
    channel = AppChannel.objects.select_related("version").filter(app=app, name=name).first()
    before = channel.version.version if channel else None
    if channel is None:
        channel = AppChannel(app=app, name=name)
    channel.version, channel.moved_at, channel.moved_by = version, now, by.name
    channel.save()
    record(
        "app:channel_moved",
        str(channel),
        target_id=app.pk,
        by=by,
        now=now,
        reason=reason,
        before={"version": before},
        after={"version": version.version},
    )
    return channel


def pin(
    *,
    version_id: int,
    client_id: UUID | None = None,
    plan_id: int | None = None,
    reason: str,
    by: Actor,
    now: datetime,
) -> AppPin:
    """Pins a client, or all clients of a plan, to a version; replaces an earlier pin."""
    check_reason(reason)
    if (client_id is None) == (plan_id is None):
        raise InvalidRequest(errors=[Fault("/client", "invalid", "Name a client or a plan.")])
    with transaction.atomic():
        version = _offerable(version_id)
        whose = {"client": client_id} if client_id else {"plan": plan_id}
        row = AppPin.objects.filter(app=version.app, **whose).first()
        if row is None:
            row = AppPin(app=version.app, client_id=client_id, plan_id=plan_id)
        row.version, row.reason, row.pinned_at, row.pinned_by = version, reason, now, by.name
        row.save()
        name, app_id, after = str(row), version.app_id, _audited(row)
        record("app:pinned", name, target_id=app_id, by=by, now=now, reason=reason, after=after)
    return row


def unpin(*, pin_id: int, reason: str, by: Actor, now: datetime) -> None:
    """Removes a pin."""
    check_reason(reason)
    with transaction.atomic():
        row = AppPin.objects.select_related("version", "client", "plan").get(pk=pin_id)
        name, app_id, before = str(row), row.app_id, _audited(row)
        record("app:unpinned", name, target_id=app_id, by=by, now=now, reason=reason, before=before)
        row.delete()


def withdraw(*, version_id: int, reason: str, by: Actor, now: datetime) -> AppVersion:
    """Withdraws a version for ever: no channel or pin can name it. Its bundle stays in storage.

    Raises ``StillOffered`` while a channel or a pin names it.
    """
    check_reason(reason)
    with transaction.atomic():
        version = _locked(version_id)
        named = [f"the channel {each.name}" for each in version.channels.all()]
        named += [f"the pin of {each.client or each.plan}" for each in version.pins.all()]
        if named:
            raise StillOffered(
                errors=[Fault("/version", "still_offered", f"Named by {', '.join(named)}.")]
            )
        if version.withdrawn_at is None:
            version.withdrawn_at, version.withdrawn_reason = now, reason
            version.save(update_fields=["withdrawn_at", "withdrawn_reason"])
            name, app_id = str(version), version.app_id
            record("app:withdrawn", name, target_id=app_id, by=by, now=now, reason=reason)
    return version


def _locked(version_id: int) -> AppVersion:
    """The version, with its app's row locked to serialize moves, pins and withdrawals."""
    version = AppVersion.objects.get(pk=version_id)
    app = MicroApp.objects.select_for_update(no_key=True).get(pk=version.app_id)
    version.refresh_from_db()
    version.app = app
    return version


def _offerable(version_id: int) -> AppVersion:
    version = _locked(version_id)
    if version.stored_at is None:
        fault = Fault("/version", "not_stored", "This version is not in storage yet.")
    elif version.withdrawn_at is not None:
        fault = Fault("/version", "withdrawn", "This version was withdrawn.")
    else:
        return version
    raise InvalidRequest(errors=[fault])


def _audited(row: AppPin) -> dict[str, str]:
    """Returns the client and the version of a pin, for the audit."""
    holder = {"client": str(row.client)} if row.client else {"plan": str(row.plan)}
    return holder | {"version": row.version.version}
