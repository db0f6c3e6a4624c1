"""Suspends where a grace has run out."""

from accounts.management.job_command import JobCommand
from licensing import night


class Command(JobCommand):
    help = "Suspend licences whose grace period is over."
    job = night.EXPIRE_GRACE
