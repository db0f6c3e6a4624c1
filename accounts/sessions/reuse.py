"""Reuse: a token that has been replaced is presented again, so of its two holders one is not the owner.

Its session ends; the audit log keeps when and from where it was used and replayed, operators are told, and the
person is told why they have to sign in again. Presented once more after that, or after any other end of its
session, it can do no harm, but it is still somebody's stolen token: that leaves evidence too, at a bounded rate.
"""

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any
from uuid import UUID

from django.conf import settings

from accounts import audit
from accounts.audit import Actor
from accounts.models import AuditEvent, RefreshToken, Session
from accounts.people import mails
from accounts.sessions.revocation import end_locked_session
from accounts.sessions.sign_in import Device
from config.api.problems import instant

ACTION = "session:token_reused"
# Two uses closer than this look like one device that asked twice; further apart, like two holders.
CONCURRENT_SECONDS = 10.0
# For one session: a stolen token that is tried a thousand times is one piece of news.
EVIDENCE_EVERY = timedelta(hours=1)


class Kind(StrEnum):
    """What a reuse looks like."""

    CONCURRENT = "concurrent"
    STALE = "stale"
    # Its session had ended before.
    REVOKED = "revoked"


def weigh(*, token_id: UUID, device: Device, now: datetime) -> None:
    """Judges a token that no longer counts, for a caller that holds the lock of its user.

    One that was never replaced has expired or was revoked, and is merely refused.
    """
    tokens = RefreshToken.objects.select_related("session__user", "replaced_by")
    token = tokens.filter(pk=token_id).first()
    # It may have been pruned or deleted since it was found.
    if token is None or token.replaced_at is None or _is_race(token, device, now=now):
        return
    if token.session.ended_at is None:
        _end(token, device, now=now)
    else:
        _note(token, device, now=now)


def _end(token: RefreshToken, device: Device, *, now: datetime) -> None:
    evidence = _evidence(token, device, now=now)
    by = _presenter(device)
    end_locked_session(session=token.session, why=Session.Ended.REUSE, by=by, now=now)
    _record(token, evidence, by=by, now=now)
    mails.token_reused(session=token.session, evidence=evidence)
    mails.signed_out(token=token, replayed_from=device.address, now=now)


def _note(token: RefreshToken, device: Device, *, now: datetime) -> None:
    """After the end of the session: nothing is left to end, and the person has nothing to do."""
    known = AuditEvent.objects.filter(action=ACTION, target_id=str(token.session_id)).first()
    if known is not None and known.at > now - EVIDENCE_EVERY:
        return
    evidence = _evidence(token, device, now=now)
    _record(token, evidence, by=_presenter(device), now=now)
    if known is None:
        mails.token_reused(session=token.session, evidence=evidence)


def _record(token: RefreshToken, evidence: dict[str, Any], *, by: Actor, now: datetime) -> None:
    audit.record(
        ACTION,
        by=by,
        now=now,
        target=token.session.user.email,
        target_id=token.session_id,
        after=evidence,
    )


def _presenter(device: Device) -> Actor:
    """Not the person: who it is, is the question."""
    return Actor(
        name="whoever presented the token", address=device.address, request_id=device.request_id
    )


def _is_race(token: RefreshToken, device: Device, *, now: datetime) -> bool:
    """Two uses at nearly the same moment on one device, where operators have chosen to tolerate that."""
    if not settings.REFRESH_RACE_SECONDS or token.replaced_at is None or token.replaced_by is None:
        return False
    # Hosts' clocks differ, so the loser's may read earlier than the winner's.
    gap = abs((now - token.replaced_at).total_seconds())
    return (
        gap < settings.REFRESH_RACE_SECONDS
        and device.fingerprint == token.device_fp
        and token.replaced_by.replaced_at is None
    )


def _evidence(token: RefreshToken, device: Device, *, now: datetime) -> dict[str, Any]:
    """When and from where a token was used and replayed, and what that looks like; as it was before its end."""
    assert token.replaced_at is not None
    session = token.session
    evidence = {
        "kind": _kind(token, now=now).value,
        "used_at": instant(token.replaced_at),
        "used_from": token.replaced_from,
        "replayed_at": instant(now),
        "replayed_from": device.address,
        "device_same": device.fingerprint == token.device_fp,
    }
    if session.ended_at is not None:
        evidence |= {"ended_at": instant(session.ended_at), "ended_by": session.ended_by}
    return evidence


def _kind(token: RefreshToken, *, now: datetime) -> Kind:
    assert token.replaced_at is not None
    if token.session.ended_at is not None:
        return Kind.REVOKED
    successor_used = token.replaced_by is None or token.replaced_by.replaced_at is not None
    gap = abs((now - token.replaced_at).total_seconds())
    return Kind.STALE if successor_used or gap > CONCURRENT_SECONDS else Kind.CONCURRENT
