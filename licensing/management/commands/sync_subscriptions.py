"""Takes over what the payment processor says of each client."""

from accounts.management.job_command import JobCommand
from licensing import night


class Command(JobCommand):
    help = "Read every client's subscription from Stripe and set the billing status of its licence."
    job = night.SYNC_SUBSCRIPTIONS
