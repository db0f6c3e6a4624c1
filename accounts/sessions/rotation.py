"""Rotation: a refresh token is good for one use, which replaces it by the next token of its chain.

A second use is either a retry after a lost answer (``accounts.sessions.retries``) or reuse
(``accounts.sessions.reuse``).
"""

from dataclasses import dataclass
from datetime import datetime
from operator import itemgetter
from typing import Any, NamedTuple
from uuid import UUID

from django.db import transaction
from django.db.models import Q

from accounts.hooks import Claims, extensions
from accounts.models import RefreshToken, Session, User
from accounts.sessions import retries, reuse
from accounts.sessions.access_tokens import AccessToken
from accounts.sessions.lifetime import token_end
from accounts.sessions.refresh_tokens import RefreshSecret
from accounts.sessions.revocation import lock_user
from accounts.sessions.sign_in import Device, TokenPair
from config.platform.concurrency.batching import BatchedStatement
from config.platform.problems.problem import Problem


class InvalidRefreshToken(Problem):
    """The one answer to unknown, expired, revoked and replaced tokens."""

    code = "invalid_refresh_token"
    status = 401
    title = "Sign-in has ended"
    default_detail = "Please sign in again."


def rotate(
    *, presented: str, device: Device, now: datetime, retry_key: str | None = None
) -> TokenPair:
    """The next pair of a session. Of several uses of one token exactly one succeeds, whatever their timing.

    ``retry_key`` is the caller's ``Idempotency-Key``: the same token and key get the same successor again,
    until that is used. Hashes and the signature are computed before the user's row is locked. One statement takes
    the lock and decides; a refused use is examined under the lock once more.
    """
    secret = RefreshSecret.parse(presented)
    token = _find(secret) if secret else None
    if secret is None or token is None or not secret.matches(token.token_hash):
        raise InvalidRefreshToken
    rotation = _Rotation(token, secret, device, retry_key, now)
    pair = rotation.replace() if token.is_valid(at=now) else None
    pair = pair or rotation.retry()
    if pair is None:
        raise InvalidRefreshToken().concerning(person=token.user_id)
    return pair


class _TokenRow(NamedTuple):
    """A token's row with columns of its session and user, read without a lock."""

    id: UUID
    token_hash: str
    device_fp: str
    expires_at: datetime
    spent_at: datetime | None
    session_id: UUID
    session_end: datetime | None
    user_id: UUID
    epoch: int

    def is_valid(self, *, at: datetime) -> bool:
        lasts = self.session_end is None or self.session_end > at
        return self.spent_at is None and self.expires_at > at and lasts


_FIND = BatchedStatement(
    """
SELECT token.id, token.token_hash, token.device_fp, token.expires_at,
       COALESCE(token.revoked_at, token.replaced_at, session.ended_at),
       session.id, session.expires_at, person.id, person.epoch
FROM accounts_refreshtoken token
JOIN accounts_session session ON session.id = token.session_id
JOIN accounts_user person ON person.id = token.user_id
WHERE token.id = %s
"""
)

# The lock comes first. PostgreSQL checks a row that changed during the wait again before it updates it, so a second
# use finds the token replaced. Whatever ends a session revokes its tokens in the same transaction. The presented token
# has arrived, so its own sealed copy, for a retry, is no longer needed; by that form of the condition the planner finds
# the parent by its successor, not by the index on boxes.
_REPLACE = BatchedStatement(
    """
WITH holder AS (
    SELECT id FROM accounts_user
    WHERE id = %(user)s AND is_active AND epoch = %(epoch)s
    FOR NO KEY UPDATE
),
replaced AS (
    UPDATE accounts_refreshtoken token
    SET replaced_by_id = %(successor)s, replaced_at = %(now)s, replaced_from = %(address)s, retry_box = %(box)s
    FROM holder
    WHERE token.id = %(token)s AND token.user_id = holder.id
      AND token.revoked_at IS NULL AND token.replaced_at IS NULL AND token.expires_at > %(now)s
    RETURNING token.id, token.user_id, token.session_id
),
arrived AS (
    UPDATE accounts_refreshtoken parent SET retry_box = NULL
    FROM replaced
    WHERE parent.replaced_by_id = replaced.id AND COALESCE(octet_length(parent.retry_box), 0) > 0
),
used AS (
    UPDATE accounts_session session SET last_used_at = %(now)s, last_used_from = %(address)s
    FROM replaced
    WHERE session.id = replaced.session_id
)
INSERT INTO accounts_refreshtoken (id, user_id, session_id, token_hash, device_fp, issued_at, expires_at)
SELECT %(successor)s, user_id, session_id, %(hash)s, %(device)s, %(now)s, %(expires)s
FROM replaced
RETURNING id
""",
    order=itemgetter("user"),
)


def _find(secret: RefreshSecret) -> _TokenRow | None:
    row = _FIND.row((secret.id,))
    return _TokenRow._make(row) if row else None


@dataclass(frozen=True, slots=True)
class _Rotation:
    """One use of a refresh token."""

    token: _TokenRow
    secret: RefreshSecret
    device: Device
    retry_key: str | None
    now: datetime

    def replace(self) -> TokenPair | None:
        """Replaces the token by a successor if it is still valid; otherwise returns None."""
        claims = extensions().claims_of(self.token.user_id)
        if claims is None:
            return None
        successor = RefreshSecret.new()
        # Signed before the commit, so that a failure to sign does not cost the token.
        pair = self._pair(successor, claims, epoch=self.token.epoch)
        return pair if _REPLACE.row(self._values(successor)) else None

    def retry(self) -> TokenPair | None:
        """The pair of a keyed retry; any other use is checked for reuse and returns None."""
        token, now = self.token, self.now
        with transaction.atomic():
            try:
                user = lock_user(token.user_id)
            except User.DoesNotExist:
                return None
            successor = self._earlier_successor()
            if successor is None:
                reuse.detect(token_id=token.id, device=self.device, now=now)
                return None
            claims = extensions().claims_of(user.pk) if user.is_active else None
            if claims is None:
                return None
            Session.objects.filter(pk=token.session_id).update(
                last_used_at=now, last_used_from=self.device.address
            )
            return self._pair(successor, claims, epoch=user.epoch)

    def _earlier_successor(self) -> RefreshSecret | None:
        """The successor that a retry received before, while it is unused and the session lasts."""
        if self.retry_key is None:
            return None
        token = RefreshToken.objects.filter(
            Q(session__expires_at=None) | Q(session__expires_at__gt=self.now),
            pk=self.token.id,
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

    def _pair(self, successor: RefreshSecret, claims: Claims, *, epoch: int) -> TokenPair:
        access = AccessToken.issue(
            user_id=self.token.user_id,
            session_id=self.token.session_id,
            epoch=epoch,
            claims=claims,
            now=self.now,
            session_end=self.token.session_end,
        )
        return TokenPair.of(access, successor)

    def _values(self, successor: RefreshSecret) -> dict[str, Any]:
        token = self.token
        return {
            "user": token.user_id,
            "epoch": token.epoch,
            "token": token.id,
            "successor": successor.id,
            "hash": successor.hash(),
            "box": self._box(successor),
            "device": self.device.fingerprint or token.device_fp,
            "address": self.device.address or None,
            "now": self.now,
            "expires": token_end(token.session_end, now=self.now),
        }

    def _box(self, successor: RefreshSecret) -> bytes | None:
        if self.retry_key is None:
            return None
        return retries.seal(
            successor, presented=self.secret, key=self.retry_key, device=self.device.fingerprint
        )
