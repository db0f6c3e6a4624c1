"""What Stripe knows of subscriptions. Only asks, never changes anything there."""

from collections import defaultdict

import requests
import stripe
from django.conf import settings

from accounts.jobs import NotDone
from config.database import release_connection

CONNECT_SECONDS, ANSWER_SECONDS = 5.0, 30.0
RETRIES = 3
PAGE = 100


class BillingUnavailable(NotDone):
    """The payment processor did not answer as it should; nobody is to suffer for that."""


def statuses_by_customer() -> dict[str, list[str]]:
    """The statuses of each customer's subscriptions, ended ones included, in a few pages or not at all.

    Raises ``BillingUnavailable`` for anything but the whole answer: half of one would look like customers who
    have left. Nothing of the database is held while waiting.
    """
    release_connection()
    found: dict[str, list[str]] = defaultdict(list)
    with requests.Session() as session:
        # The environment's proxies and credentials are not meant for this.
        session.trust_env = False
        try:
            listing = _client(session).v1.subscriptions.list({"status": "all", "limit": PAGE})
            for each in listing.auto_paging_iter():
                found[_id(each.customer)].append(each.status)
        except stripe.StripeError as error:
            # Its message may name the key.
            raise BillingUnavailable(
                f"Stripe could not be asked: {type(error).__name__}, status {error.http_status or '-'}."
            ) from None
        except (AttributeError, TypeError, ValueError):
            raise BillingUnavailable("Stripe answered something that is no list.") from None
    return dict(found)


def _client(session: requests.Session) -> stripe.StripeClient:
    base = settings.STRIPE_API_BASE
    return stripe.StripeClient(
        settings.STRIPE_API_KEY(),
        http_client=stripe.RequestsClient(
            timeout=(CONNECT_SECONDS, ANSWER_SECONDS), session=session
        ),
        max_network_retries=RETRIES,
        base_addresses={"api": base} if base else None,
    )


def _id(customer: str | stripe.Customer) -> str:
    return customer if isinstance(customer, str) else customer.id
