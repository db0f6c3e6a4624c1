"""Removes events that are older than they are kept."""

from accounts.management.job_command import JobCommand
from telemetry import night


class Command(JobCommand):
    help = "Remove telemetry received more than TELEMETRY_RETENTION_DAYS ago."
    job = night.PRUNE_TELEMETRY
