"""Removes refusals that are older than two weeks."""

from accounts.management.job_command import JobCommand
from usage import night


class Command(JobCommand):
    help = "Remove refusals older than 14 days, and the oldest beyond a million."
    job = night.PRUNE_REFUSALS
