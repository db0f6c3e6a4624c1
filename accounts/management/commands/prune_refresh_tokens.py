"""Removes sessions that have long been over, with their tokens, and expired ones of the console."""

from accounts.management.job_command import JobCommand
from accounts.worker import night


class Command(JobCommand):
    help = (
        "Remove sessions that ended or expired 30 days ago, with their tokens, "
        "and sessions of the console that have expired."
    )
    job = night.PRUNE_REFRESH_TOKENS
