"""Looks at the month of everybody and tells operators what they should know."""

from accounts.management.job_command import JobCommand
from usage import night


class Command(JobCommand):
    help = "Email operators about people near a monthly cap, and about the 95th percentile of all."
    job = night.CHECK_USAGE_ALERTS
