"""Counts the telemetry of the days that are over."""

from accounts.management.job_command import JobCommand
from telemetry import night


class Command(JobCommand):
    help = "Count the events of each day that is over, by app and shell version."
    job = night.COUNT_TELEMETRY
