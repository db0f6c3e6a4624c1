"""Rotation: a refresh token is used once and replaced by the next of its chain.

Presented again it is a theft signal, because of two holders one is not the owner: the session ends, the
audit log keeps when and from where it was used and replayed, and operators hear of it.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import transaction

from accounts import audit, mails, retries
from accounts.access_tokens import AccessToken, Claims
from accounts.audit import Actor
from accounts.claims import claims_of
from accounts.models import RefreshToken, Session, User
from accounts.refresh_tokens import RefreshSecret
from accounts.revocation import end_locked_session, find, lock_user
from accounts.sign_in import Device, TokenPair, token_end
from config.problems import Problem, instant

# Two uses closer than this look like one device that asked twice; further apart, like two holders.
CONCURRENT_SECONDS = 10.0


class InvalidRefreshToken(Problem):
    """One answer for unknown, expired, revoked and replaced tokens."""

    code = "invalid_refresh_token"
    status = 401
    title = "Sign-in has ended"
    default_detail = "Please sign in again."


def rotate(
    *, presented: str, device: Device, now: datetime, retry_key: str | None = None
) -> TokenPair:
    """The next pair of a session. Of several uses of one token exactly one succeeds, whatever their timing.

    ``retry_key`` is the caller's ``Idempotency-Key``: the same token and key get the same successor again,
    until that is used. Hashes are computed before the user's row is locked; the update under the lock decides.
    """
    secret = RefreshSecret.parse(presented)
    token = find(secret) if secret else None
    if secret is None or token is None:
        raise InvalidRefreshToken
    fresh = RefreshSecret.new()
    rotation = _Rotation(token, secret, device, retry_key, now)
    token_hash = fresh.hash()
    with transaction.atomic():
        try:
            user = lock_user(token.user_id)
        except User.DoesNotExist:
            raise InvalidRefreshToken from None
        claims = claims_of(user.pk) if user.is_active else None
        if claims is None:
            raise InvalidRefreshToken
        won = rotation.replace(fresh, token_hash=token_hash)
        successor = fresh if won else rotation.again()
        if successor is None:
            # Whatever this finds is committed; the refusal comes after.
            rotation.weigh(user)
            pair = None
        else:
            # Signed before it is committed: a key that cannot sign must not cost the presented token.
            pair = _pair(
                user, session_id=token.session_id, successor=successor, claims=claims, now=now
            )
    if pair is None:
        raise InvalidRefreshToken
    return pair


def _pair(
    user: User, *, session_id: UUID, successor: RefreshSecret, claims: Claims, now: datetime
) -> TokenPair:
    access = AccessToken.issue(
        user_id=user.pk, session_id=session_id, epoch=user.epoch, claims=claims, now=now
    )
    return TokenPair(str(access), successor.text(), int(settings.ACCESS_LIFETIME.total_seconds()))


@dataclass(frozen=True, slots=True)
class _Rotation:
    """One use of one token, under the lock of its user."""

    token: RefreshToken
    secret: RefreshSecret
    device: Device
    retry_key: str | None
    now: datetime

    def replace(self, successor: RefreshSecret, *, token_hash: str) -> bool:
        """Marks the token as replaced if it still counts, and only then makes its successor."""
        token, now = self.token, self.now
        replaced = (
            RefreshToken.objects.filter(pk=token.pk, session__ended_at=None)
            .live(at=now)
            .update(
                replaced_by=successor.id,
                replaced_at=now,
                replaced_from=self.device.address,
                retry_box=self._box(successor),
            )
        )
        if not replaced:
            return False
        RefreshToken.objects.create(
            id=successor.id,
            user_id=token.user_id,
            session_id=token.session_id,
            token_hash=token_hash,
            device_fp=self.device.fingerprint or token.device_fp,
            issued_at=now,
            expires_at=token_end(token.session, now=now),
        )
        # This token has arrived and is used: nobody needs to be given it again.
        RefreshToken.objects.filter(replaced_by=token.pk, retry_box__isnull=False).update(
            retry_box=None
        )
        Session.objects.filter(pk=token.session_id).update(last_used_at=now)
        return True

    def again(self) -> RefreshSecret | None:
        """The successor that this very retry was given before, while it is unused and the session lives."""
        if self.retry_key is None:
            return None
        token = RefreshToken.objects.filter(
            pk=self.token.pk,
            revoked_at=None,
            session__ended_at=None,
            replaced_at__gt=self.now - retries.LIFETIME,
            replaced_by__in=RefreshToken.objects.live(at=self.now),
            retry_box__isnull=False,
        ).first()
        if token is None or token.retry_box is None:
            return None
        return retries.unseal(
            bytes(token.retry_box),
            presented=self.secret,
            key=self.retry_key,
            device=self.device.fingerprint,
        )

    def weigh(self, user: User) -> None:
        """A token that no longer counts: expired and revoked ones are merely refused, reuse ends its session."""
        token = RefreshToken.objects.select_related("session", "user", "replaced_by").get(
            pk=self.token.pk
        )
        if token.replaced_by is None or token.session.ended_at is not None or self._is_race(token):
            return
        by = Actor(
            name=user.email,
            id=user.pk,
            address=self.device.address,
            request_id=self.device.request_id,
        )
        end_locked_session(session=token.session, why=Session.Ended.REUSE, by=by, now=self.now)
        evidence = self._evidence(token)
        audit.record(
            "session:token_reused",
            by=by,
            now=self.now,
            target=user.email,
            target_id=token.session_id,
            after=evidence,
        )
        mails.token_reused(user=user, session_id=token.session_id, evidence=evidence)

    def _box(self, successor: RefreshSecret) -> bytes | None:
        if self.retry_key is None:
            return None
        return retries.seal(
            successor, presented=self.secret, key=self.retry_key, device=self.device.fingerprint
        )

    def _is_race(self, token: RefreshToken) -> bool:
        """Two uses at nearly the same moment on one device, where operators have chosen to tolerate that."""
        if not settings.REFRESH_RACE_SECONDS or token.replaced_at is None:
            return False
        # Hosts' clocks differ, so the loser's may read earlier than the winner's.
        gap = abs((self.now - token.replaced_at).total_seconds())
        return (
            gap < settings.REFRESH_RACE_SECONDS
            and self.device.fingerprint == token.device_fp
            and token.replaced_by is not None
            and token.replaced_by.replaced_by_id is None
        )

    def _evidence(self, token: RefreshToken) -> dict[str, Any]:
        """When and from where a token was used and replayed, and what that looks like."""
        assert token.replaced_at is not None
        assert token.replaced_by is not None
        gap = (self.now - token.replaced_at).total_seconds()
        stale = token.replaced_by.replaced_by_id is not None or gap > CONCURRENT_SECONDS
        return {
            "kind": "stale" if stale else "concurrent",
            "used_at": instant(token.replaced_at),
            "used_from": token.replaced_from,
            "replayed_at": instant(self.now),
            "replayed_from": self.device.address,
            "device_same": self.device.fingerprint == token.device_fp,
        }
