"""Rotation: a refresh token is used once and replaced by the next of its chain.

Presented again it is either the retry of its own lost answer (``accounts.retries``) or reuse (``accounts.reuse``).
"""

from dataclasses import dataclass
from datetime import datetime

from django.db import transaction

from accounts import retries, reuse
from accounts.access_tokens import AccessToken
from accounts.claims import claims_of
from accounts.models import RefreshToken, Session, User
from accounts.refresh_tokens import RefreshSecret
from accounts.revocation import find, lock_user
from accounts.sign_in import Device, TokenPair, token_end
from config.problems import Problem


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
    pair: TokenPair | None = None
    with transaction.atomic():
        try:
            user = lock_user(token.user_id)
        except User.DoesNotExist:
            raise InvalidRefreshToken from None
        claims = claims_of(user.pk) if user.is_active else None
        won = claims is not None and rotation.replace(fresh, token_hash=token_hash)
        successor = fresh if won else rotation.again()
        if successor is None:
            # Whatever this finds is committed; the refusal comes after.
            reuse.weigh(token_id=token.pk, device=device, now=now)
        elif claims is not None:
            rotation.note_use()
            access = AccessToken.issue(
                user_id=user.pk,
                session_id=token.session_id,
                epoch=user.epoch,
                claims=claims,
                now=now,
                session_end=token.session.expires_at,
            )
            pair = TokenPair.of(access, successor)
    if pair is None:
        raise InvalidRefreshToken
    return pair


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

    def note_use(self) -> None:
        Session.objects.filter(pk=self.token.session_id).update(
            last_used_at=self.now, last_used_from=self.device.address
        )

    def _box(self, successor: RefreshSecret) -> bytes | None:
        if self.retry_key is None:
            return None
        return retries.seal(
            successor, presented=self.secret, key=self.retry_key, device=self.device.fingerprint
        )
