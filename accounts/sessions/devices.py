"""Devices: how many a person may be signed in on, by the licence of their client.

A device has the name that its shell gives it (``device_fp``); a session without one is a device of its own. One rule,
under the lock of the person's row, at the only door by which a session begins. A refresh is never refused.
"""

from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from django.db import transaction
from django.db.models import Count, Q

from accounts import mails
from accounts.audit import Actor, record
from accounts.hooks import DeviceLimit
from accounts.models import AuditEvent, Session, User
from accounts.sessions.revocation import end_locked_session, lock_user
from config.platform.problems.problem import NotFound, Problem, instant

ACTION = "session:device_refused"
# Per person: a shell that tries again and again must not fill the audit log.
ONE_IN = timedelta(minutes=1)

# The live sessions of one device, the last used first.
Held = list[Session]


class DeviceLimitReached(Problem):
    """The credentials are right. ``limit`` is the number of devices, ``devices`` lists those that are signed in."""

    code = "device_limit_reached"
    status = 403
    title = "No free device"
    default_detail = "You are signed in on as many devices as your licence allows."


def devices_held(user: User, *, at: datetime) -> list[Held]:
    """The devices that a person is signed in on, the last used first."""
    held: dict[str | UUID, Held] = {}
    live = Session.objects.filter(user=user).live(at=at)
    for session in live.order_by("-last_used_at", "-started_at", "pk"):
        session.user = user
        held.setdefault(session.device_fp or session.pk, []).append(session)
    return list(held.values())


class DevicesOfClient(NamedTuple):
    """The devices that the people of a client are signed in on: how many each has, and how many have no name."""

    of_people: list[int]
    unnamed: int

    def people_over(self, limit: int) -> int:
        return sum(number > limit for number in self.of_people)


def devices_of_client(client_id: UUID, *, at: datetime) -> DevicesOfClient:
    live = Session.objects.filter(user__client=client_id).live(at=at).order_by()
    named = Count("device_fp", distinct=True, filter=~Q(device_fp=""))
    counted = live.values("user").annotate(named=named, unnamed=Count("pk", filter=Q(device_fp="")))
    rows = [*counted.values_list("named", "unnamed")]
    return DevicesOfClient([sum(row) for row in rows], sum(unnamed for _, unnamed in rows))


def make_room(
    user: User,
    *,
    device_fp: str,
    limit: DeviceLimit | None,
    end_session: UUID | None,
    by: Actor,
    now: datetime,
) -> None:
    """Ends what a sign-in from this device takes the place of, or raises ``DeviceLimitReached``.

    ``end_session`` is the session that its person gives up for it, with others of the same device; raises ``NotFound``
    where it is no live session of theirs. The caller holds the lock of the person's row. The number of devices never
    rises above the limit; where it is above it already, because the limit was lowered, it does not rise at all.
    """
    if limit is None and end_session is None:
        return
    held = devices_held(user, at=now)
    if end_session is not None:
        given_up = [each for each in held if any(one.pk == end_session for one in each)]
        if not given_up:
            raise NotFound("You have no such session.")
        _end(given_up, why=Session.Ended.LOGOUT, by=by, now=now)
    elif limit is not None:
        leaving = _leaving(held, device_fp, limit)
        _end(leaving, why=Session.Ended.DEVICES, by=by, now=now)
        # One without a name may be the same device, which signs in again and again.
        if limit.oldest_leaves and any(each[0].device_fp != device_fp for each in leaving):
            names = [each[0].device for each in leaving]
            mails.devices_signed_out(user=user, devices=names, limit=limit.devices, now=now)


def _leaving(held: list[Held], device_fp: str, limit: DeviceLimit) -> list[Held]:
    """The devices that make room for one of this name."""
    is_known = bool(device_fp) and any(each[0].device_fp == device_fp for each in held)
    if is_known or len(held) < limit.devices:
        return []
    unnamed = [each for each in held if not each[0].device_fp]
    if not device_fp and unnamed:
        # Shells of before send no name, and cannot ask which device to give up.
        return unnamed[-1:]
    if limit.oldest_leaves:
        return held[limit.devices - 1 :]
    raise DeviceLimitReached(
        _refusal(limit.devices), limit=limit.devices, devices=[_shown(each[0]) for each in held]
    )


def record_refusal(user_id: UUID, *, problem: DeviceLimitReached, by: Actor, now: datetime) -> None:
    """Writes the event of a sign-in that was refused for its device, after that was rolled back; one a minute."""
    with transaction.atomic():
        try:
            user = lock_user(user_id)
        except User.DoesNotExist:
            return
        of_person = AuditEvent.objects.filter(action=ACTION, target_id=str(user.pk))
        if not of_person.filter(at__gt=now - ONE_IN, at__lt=now + ONE_IN).exists():
            after = {"limit": problem.members["limit"]}
            record("session:device_refused", user, by=by, now=now, after=after)


def _end(devices: list[Held], *, why: Session.Ended, by: Actor, now: datetime) -> None:
    for session in (one for each in devices for one in each):
        end_locked_session(session=session, why=why, by=by, now=now)


def _refusal(limit: int) -> str:
    number = "one device" if limit == 1 else f"{limit} devices"
    return f"Your licence allows {number} at a time. Sign out of one of yours to sign in here."


def _shown(session: Session) -> dict[str, str]:
    used = instant(session.last_used_at)
    return {"id": str(session.pk), "device": session.device, "last_used_at": used}
