"""Rotation: a refresh token is used once and replaced by the next of its chain.

Presented again it is a theft signal, because of two holders one is not the owner: the session ends, the
audit log keeps when and from where it was used and replayed, and operators hear of it.
"""

from datetime import datetime
from uuid import UUID

from django.conf import settings
from django.db import transaction

from accounts import audit, mails
from accounts.access_tokens import AccessToken, Claims
from accounts.audit import Actor
from accounts.claims import claims_of
from accounts.models import RefreshToken, Session, User
from accounts.refresh_tokens import RefreshSecret
from accounts.revocation import end_locked_session, find, lock_user
from accounts.sign_in import Device, TokenPair, token_end
from config.problems import Problem, instant


class InvalidRefreshToken(Problem):
    """One answer for unknown, expired, revoked and replaced tokens."""

    code = "invalid_refresh_token"
    status = 401
    title = "Sign-in has ended"
    default_detail = "Please sign in again."


def rotate(*, presented: str, device: Device, now: datetime) -> TokenPair:
    """The next pair of a session. Of several uses of one token exactly one succeeds, whatever their timing.

    Both hashes are computed before the user's row is locked; the conditional update under the lock decides.
    """
    secret = RefreshSecret.parse(presented)
    token = find(secret) if secret else None
    if token is None:
        raise InvalidRefreshToken
    successor = RefreshSecret.new()
    successor_hash = successor.hash()
    with transaction.atomic():
        user = lock_user(token.user_id)
        claims = claims_of(user.pk) if user.is_active else None
        won = claims is not None and _replace(
            token, by=successor, token_hash=successor_hash, device=device, now=now
        )
        if not won:
            # Whatever this finds is committed; the refusal comes after.
            _weigh(token.pk, user=user, device=device, now=now)
    if not won or claims is None:
        raise InvalidRefreshToken
    return _pair(user, session_id=token.session_id, successor=successor, claims=claims, now=now)


def _pair(
    user: User, *, session_id: UUID, successor: RefreshSecret, claims: Claims, now: datetime
) -> TokenPair:
    access = AccessToken.issue(
        user_id=user.pk, session_id=session_id, epoch=user.epoch, claims=claims, now=now
    )
    return TokenPair(str(access), successor.text(), int(settings.ACCESS_LIFETIME.total_seconds()))


def _replace(
    token: RefreshToken, *, by: RefreshSecret, token_hash: str, device: Device, now: datetime
) -> bool:
    """Marks the token as replaced if it still counts, and only then makes its successor."""
    session = token.session
    replaced = (
        RefreshToken.objects.filter(pk=token.pk, session__ended_at=None)
        .live(at=now)
        .update(replaced_by=by.id, replaced_at=now, replaced_from=device.address)
    )
    if not replaced:
        return False
    RefreshToken.objects.create(
        id=by.id,
        user_id=token.user_id,
        session_id=token.session_id,
        token_hash=token_hash,
        device_fp=device.fingerprint or token.device_fp,
        issued_at=now,
        expires_at=token_end(session, now=now),
    )
    Session.objects.filter(pk=token.session_id).update(last_used_at=now)
    return True


def _weigh(token_id: UUID, *, user: User, device: Device, now: datetime) -> None:
    """A token that no longer counts: expired and revoked ones are merely refused, a replaced one ends its session."""
    token = RefreshToken.objects.select_related("session", "user").get(pk=token_id)
    if token.replaced_by_id is None or token.session.ended_at is not None:
        return
    by = Actor(name=user.email, id=user.pk, address=device.address, request_id=device.request_id)
    end_locked_session(session=token.session, why=Session.Ended.REUSE, by=by, now=now)
    evidence = {
        "used_at": instant(token.replaced_at) if token.replaced_at else None,
        "used_from": token.replaced_from,
        "replayed_at": instant(now),
        "replayed_from": device.address,
        "device_same": device.fingerprint == token.device_fp,
    }
    audit.record(
        "session:token_reused",
        by=by,
        now=now,
        target=user.email,
        target_id=token.session_id,
        after=evidence,
    )
    mails.token_reused(user=user, session_id=token.session_id, evidence=evidence)
