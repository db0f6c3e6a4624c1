"""Reuse detection: a replaced refresh token is presented again, so it has two holders and one is not the owner.

The session ends, the audit log records the times and addresses of both uses, and mails inform the operators and the
person. A further use after the end of the session is harmless, but it still indicates a stolen token: the audit log
records it too, at a bounded rate.
"""

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any
from uuid import UUID

from django.conf import settings

from accounts import audit, mails
from accounts.audit import Actor
from accounts.models import AuditEvent, RefreshToken, Session
from accounts.sessions.revocation import end_locked_session
from accounts.sessions.sign_in import Device
from config.platform.problems.problem import instant

ACTION = "session:token_reused"
# Two uses closer together than this look like one device that sent the request twice; otherwise like two holders.
CONCURRENT_SECONDS = 10.0
# Per session: a stolen token that is tried a thousand times must not fill the audit log.
EVIDENCE_EVERY = timedelta(hours=1)


class Kind(StrEnum):
    """The kinds of reuse."""

    CONCURRENT = "concurrent"
    STALE = "stale"
    # After the end of the session.
    REVOKED = "revoked"


def detect(*, token_id: UUID, device: Device, now: datetime) -> None:
    """Detects the reuse of a refused token. The caller holds the lock of its user.

    A token that was never replaced has expired or was revoked, and is not reuse.
    """
    tokens = RefreshToken.objects.select_related("session__user", "replaced_by")
    token = tokens.filter(pk=token_id).first()
    # It may have been pruned or deleted since it was found.
    if token is None or token.replaced_at is None or _is_race(token, device, now=now):
        return
    if token.session.ended_at is None:
        _end_session(token, device, now=now)
    else:
        _record_late(token, device, now=now)


def _end_session(token: RefreshToken, device: Device, *, now: datetime) -> None:
    evidence = _evidence(token, device, now=now)
    by = _presenter(device)
    end_locked_session(session=token.session, why=Session.Ended.REUSE, by=by, now=now)
    _record(token, evidence, by=by, now=now)
    mails.token_reused(session=token.session, evidence=evidence)
    mails.signed_out(token=token, replayed_from=device.address, now=now)


def _record_late(token: RefreshToken, device: Device, *, now: datetime) -> None:
    """Records a reuse after the end of the session, which needs no action of the person."""
    known = AuditEvent.objects.filter(action=ACTION, target_id=str(token.session_id)).first()
    if known is not None and known.at > now - EVIDENCE_EVERY:
        return
    evidence = _evidence(token, device, now=now)
    _record(token, evidence, by=_presenter(device), now=now)
    if known is None:
        mails.token_reused(session=token.session, evidence=evidence)


def _record(token: RefreshToken, evidence: dict[str, Any], *, by: Actor, now: datetime) -> None:
    audit.record(
        ACTION, token.session.user.email, by=by, now=now, target_id=token.session_id, after=evidence
    )


def _presenter(device: Device) -> Actor:
    """The unknown holder of the token, who may not be its owner."""
    return Actor(
        name="whoever presented the token", address=device.address, request_id=device.request_id
    )


def _is_race(token: RefreshToken, device: Device, *, now: datetime) -> bool:
    """Returns whether two uses by one device within ``REFRESH_RACE_SECONDS`` are to be tolerated."""
    if not settings.REFRESH_RACE_SECONDS or token.replaced_at is None or token.replaced_by is None:
        return False
    # The clocks of hosts differ, so the second use may have the earlier time.
    gap = abs((now - token.replaced_at).total_seconds())
    return (
        gap < settings.REFRESH_RACE_SECONDS
        and device.fingerprint == token.device_fp
        and token.replaced_by.replaced_at is None
    )


def _evidence(token: RefreshToken, device: Device, *, now: datetime) -> dict[str, Any]:
    """The times and addresses of both uses and the kind of reuse, read before the session ends."""
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
