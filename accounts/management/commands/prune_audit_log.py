"""Removes audit events that are older than they must be kept."""

from accounts.management.job_command import JobCommand
from accounts.worker import night


class Command(JobCommand):
    help = "Remove audit events older than AUDIT_RETENTION_DAYS."
    job = night.PRUNE_AUDIT_LOG
