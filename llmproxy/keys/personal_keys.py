"""Personal keys: made and ended by their person, ended by operators, and good for model calls alone.

A key is of the epoch in which it was made, so it ends with its person's access by the row that ends every session: a
revocation, a new password, a move to another client. What plan and licence refuse, they refuse while they do.
"""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import Max, Q

from accounts import mails
from accounts.audit import Actor, record
from accounts.sessions.authentication import AccessRevoked
from accounts.sessions.revocation import lock_user
from accounts.worker.pruning import OVER_KEPT
from config.platform.periods import Period
from config.platform.problems.problem import Fault, InvalidRequest, Problem, instant
from licensing.callers import Caller, CallerKey, KeyHolders
from licensing.models import Licence
from licensing.permissions import NotEntitled
from llmproxy.keys.key_text import KeyText
from llmproxy.models import PersonalKey, PersonalKeyQuerySet
from usage.limits import LEAST_OUTPUT, effective_of_all

MOST = 10
MOST_A_DAY = 20
MOST_DAYS = 90
# One mail tells of all the keys that a person makes meanwhile.
MAIL_EVERY = timedelta(hours=1)
# The last use of a key is written at most this often.
USE_PRECISION = timedelta(minutes=1)
ENDED = "This personal key has ended. Please create a new one."
MADE_TODAY = f"You have created {MOST_A_DAY} personal keys today (UTC), which is the limit. Please use one of them."
NO_KEYS = "Your organisation's plan does not include personal keys."

_holders = KeyHolders(PersonalKey)


class TooManyKeys(Problem):
    code = "too_many_keys"
    status = 409
    title = "Too many personal keys"
    default_detail = f"You already have {MOST} personal keys. Revoke one you no longer need."


@dataclass(frozen=True, slots=True)
class NewKey:
    """A key that was just made, with its text, which is not stored."""

    row: PersonalKey
    text: str = field(repr=False)


def make_key(
    *,
    caller: Caller,
    name: str,
    days: int,
    monthly_output_tokens: int | None,
    by: Actor,
    now: datetime,
) -> NewKey:
    """Makes a key of the caller, with a cap of its own if it is given one; a mail informs them.

    Raises ``NotEntitled`` where the plan has no keys, ``TooManyKeys`` for those that live or were made today,
    ``InvalidRequest`` for a cap above the person's, and ``AccessRevoked`` if their access was ended meanwhile.
    """
    text = KeyText.new()
    with transaction.atomic():
        # Keys are counted one after another, and none is made in an epoch that has passed.
        user = lock_user(caller.user_id)
        if user.epoch != caller.epoch or not user.is_active:
            raise AccessRevoked
        if not Licence.objects.filter(client__users=user, plan__allows_keys=True).exists():
            raise NotEntitled(NO_KEYS)
        _check_cap(monthly_output_tokens, user_id=user.pk, now=now)
        keys = PersonalKey.objects.filter(user=user)
        if keys.live(at=now).count() >= MOST:
            raise TooManyKeys
        today = Period.of(now).next_day - timedelta(days=1)
        if keys.filter(created_at__gte=today).count() >= MOST_A_DAY:
            raise TooManyKeys(MADE_TODAY)
        mail_at = _mail_at(keys, now=now)
        key = PersonalKey.objects.create(
            user=user,
            name=name,
            hash=text.hashed,
            epoch=user.epoch,
            monthly_output_tokens=monthly_output_tokens,
            created_at=now,
            expires_at=now + timedelta(days=days),
            mailed_at=mail_at,
        )
        _record("personal_key:made", key, by=by, now=now, after=_seen(key))
        if mail_at is not None:
            ends, address = key.expires_at, by.address
            mails.personal_key_made(user=user, address=address, ends=ends, now=now, send_at=mail_at)
    return NewKey(key, text.text)


def _mail_at(keys: PersonalKeyQuerySet, *, now: datetime) -> datetime | None:
    """Returns when to mail about a new key; None where a mail that is due covers it."""
    last: datetime | None = keys.aggregate(last=Max("mailed_at"))["last"]
    if last is None or last <= now - MAIL_EVERY:
        return now
    return last + MAIL_EVERY if last <= now else None


def _check_cap(cap: int | None, *, user_id: UUID, now: datetime) -> None:
    theirs = effective_of_all(user_ids=[user_id], now=now)[user_id].output
    if cap is not None and theirs is not None and cap > max(theirs, LEAST_OUTPUT):
        detail = f"A key's own cap cannot exceed yours of {theirs:,} tokens."
        raise InvalidRequest(errors=[Fault("/monthly_output_tokens", "max_value", detail)])


def end_key(*, key: PersonalKey, by: Actor, now: datetime, reason: str = "") -> bool:
    """Ends a key; its running calls end within seconds. Returns False if it had ended before."""
    with transaction.atomic():
        if not PersonalKey.objects.filter(pk=key.pk, ended_at=None).update(ended_at=now):
            return False
        _record("personal_key:ended", key, by=by, now=now, reason=reason, before=_seen(key))
    return True


def holder_of(text: KeyText, *, now: datetime) -> tuple[Caller, CallerKey] | None:
    """The caller with this key, in one query, or None for a key that does not exist. Notes its use each minute."""
    caller = _holders.load(hashed=text.hashed)
    if caller is None or caller.key is None:
        return None
    last = caller.key.last_used_at
    if caller.may_call and (last is None or last <= now - USE_PRECISION):
        _note_use(caller.key.id, now=now)
    return caller, caller.key


def holder_of_row(key: PersonalKey) -> Caller:
    """The caller with this key, for a look that notes no use."""
    found = _holders.load(hashed=bytes(key.hash))
    if found is None:
        raise PersonalKey.DoesNotExist
    return found


def prune_keys(*, now: datetime, dry_run: bool = False) -> int:
    """Removes keys that ended or expired 30 days ago; returns their number. Ledger and audit log keep their ids."""
    over = now - OVER_KEPT
    keys = PersonalKey.objects.filter(Q(expires_at__lt=over) | Q(ended_at__lt=over))
    return keys.count() if dry_run else keys.delete()[0]


def _note_use(key_id: UUID, *, now: datetime) -> None:
    # Of calls at the same moment one writes.
    due = Q(last_used_at=None) | Q(last_used_at__lte=now - USE_PRECISION)
    PersonalKey.objects.filter(due, pk=key_id).update(last_used_at=now)


def _record(action: str, key: PersonalKey, **inputs: Any) -> None:
    # A person's events are found by their id.
    record(action, key.user.email, target_id=key.user_id, **inputs)


def _seen(key: PersonalKey) -> dict[str, Any]:
    """The key in the audit log, without its name: the log outlives the erasure of whoever wrote it."""
    return {
        "key": str(key.pk),
        "expires_at": instant(key.expires_at),
        "monthly_output_tokens": key.monthly_output_tokens,
    }
