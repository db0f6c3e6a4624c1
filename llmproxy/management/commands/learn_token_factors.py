"""Learns the factors of prompt estimates from the ledger."""

from accounts.management.job_command import JobCommand
from llmproxy import night


class Command(JobCommand):
    help = "Learn the token factors of routes from providers' reports."
    job = night.LEARN_TOKEN_FACTORS
