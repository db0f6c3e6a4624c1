"""Removes personal keys that have long been over."""

from accounts.management.job_command import JobCommand
from llmproxy import night


class Command(JobCommand):
    help = "Remove personal keys that ended or expired 30 days ago. Usage and audit log stay."
    job = night.PRUNE_PERSONAL_KEYS
