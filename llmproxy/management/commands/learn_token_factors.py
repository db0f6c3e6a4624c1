"""Learns the factors of prompt estimates from the ledger."""

from accounts.management.job_command import JobCommand
from llmproxy import night


class Command(JobCommand):
    help = "Learn from providers' reports by how much routes multiply the count of a prompt."
    job = night.LEARN_TOKEN_FACTORS
