"""Takes over what the payment processor says of each client."""

from accounts.management.job_command import JobCommand
from licensing import night


class Command(JobCommand):
    help = "Ask Stripe for every client's subscription and set what billing says of its licence."
    job = night.SYNC_SUBSCRIPTIONS
