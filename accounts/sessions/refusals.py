"""Refused sign-ins in the audit log, by account, so that guessing shows in the console.

A refusal queues the same job for every email, and only the worker looks the account up: neither the answer nor its
time reveals whose account exists. What was typed for an email that nobody has is kept nowhere, as it may be a password.
"""

from datetime import datetime, timedelta

from django.db import transaction
from procrastinate.contrib.django import app

from accounts.audit import Actor, record
from accounts.models import AuditEvent, User
from accounts.sessions.revocation import lock_user
from config.platform.jobs.queue import RESETS, UNHURRIED, crowded

ACTION = "session:refused"
# Per account: a flood of guesses must not fill the audit log.
ONE_IN = timedelta(minutes=1)


def queue_refusal(*, email: str, address: str | None, request_id: str, now: datetime) -> None:
    """Queues the event of a refused sign-in, whether or not the email has a user; none while too many jobs wait."""
    if "@" not in email or crowded():
        return
    job = app.configure_task("accounts.record_refusal", queue=RESETS, priority=UNHURRIED)
    job.defer(email=email, address=address, request_id=request_id, at=now.isoformat())


def record_refusal(*, email: str, address: str | None, request_id: str, at: datetime) -> bool:
    """Writes the event of a refused sign-in if the email has a user and no other is within a minute of it."""
    user_id = User.objects.by_email(email).values_list("pk", flat=True).first()
    if user_id is None:
        return False
    with transaction.atomic():
        try:
            user = lock_user(user_id)
        except User.DoesNotExist:
            return False
        near = {"at__gt": at - ONE_IN, "at__lt": at + ONE_IN}
        if AuditEvent.objects.filter(action=ACTION, target_id=str(user.pk), **near).exists():
            return False
        stranger = Actor(name="unknown caller", address=address, request_id=request_id)
        record(ACTION, user, by=stranger, now=at)
    return True
