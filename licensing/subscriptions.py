"""Reads subscriptions from Stripe and never changes them.

Stripe goes on calling a subscription active while nobody collects its payments; here it is paused. Where
``STRIPE_PRODUCTS`` names what a licence is, subscriptions to anything else are passed over.
"""

from collections import defaultdict
from collections.abc import Container, Iterable, Iterator
from contextlib import contextmanager
from time import sleep

import requests
import stripe
from django.conf import settings
from stripe.params import SubscriptionListParams

from config.platform.db.connections import release_connection
from licensing.billing_decisions import PAUSED
from licensing.customer_queries import BillingUnavailable, CustomerRefused

CONNECT_SECONDS, ANSWER_SECONDS = 5.0, 30.0
RETRIES = 3
# Seconds before each retry after a rate limit, which the library itself does not retry.
RATE_LIMIT_WAITS = (2.0, 8.0, 20.0)
PAGE = 100
NO_SUCH_CUSTOMER = "resource_missing"
# Statuses under which a subscription gives access, which it does not without its payments.
PAUSABLE = frozenset({"active", "trialing", "past_due"})
# Errors about the key, the rate or a timeout, which are the same for every customer.
OF_EVERYBODY = frozenset({401, 403, 408, 429})


def statuses_by_customer() -> dict[str, list[str]]:
    """The statuses of each customer's subscriptions, ended ones included.

    Raises ``BillingUnavailable`` unless all pages arrive: missing ones would look like customers who have left.
    Holds no database connection while waiting.
    """
    found: dict[str, list[str]] = defaultdict(list)
    with _asking() as client:
        for each in _listed(client, {}):
            if _is_licence(client, each):
                found[_id(each.customer)].append(_status(each))
    return dict(found)


def statuses_of(customer_id: str) -> list[str]:
    """The current statuses of one customer's subscriptions, empty for an unknown customer.

    Raises ``CustomerRefused`` for an error about this customer, and ``BillingUnavailable`` for any other.
    """
    with _asking() as client:
        try:
            listed = _listed(client, {"customer": customer_id})
            return [
                _status(each)
                for each in listed
                if _id(each.customer) == customer_id and _is_licence(client, each)
            ]
        except stripe.StripeError as error:
            if isinstance(error, stripe.InvalidRequestError) and error.code == NO_SUCH_CUSTOMER:
                return []
            if not _is_about_them(error):
                raise
            raise CustomerRefused(
                f"Stripe refused the request about a customer: {_kind(error)}"
            ) from None


def answers() -> None:
    """Requests any one subscription, to test the connection. Raises ``BillingUnavailable``."""
    with _asking() as client:
        for each in _page(client, {"status": "all", "limit": 1}).data:
            _text(each.status)


def _listed(
    client: stripe.StripeClient, which: SubscriptionListParams
) -> Iterator[stripe.Subscription]:
    """Every subscription of a list. The library's own iteration ends at an empty page, even if more follow."""
    asked: SubscriptionListParams = {"status": "all", "limit": PAGE, **which}
    seen: set[str] = set()
    while True:
        page = _page(client, asked)
        for each in page.data:
            if each.id in seen:
                raise ValueError("a subscription was listed twice")
            seen.add(each.id)
            yield each
        if not page.has_more:
            return
        asked["starting_after"] = page.data[-1].id


def _status(subscription: stripe.Subscription) -> str:
    status = _text(subscription.status)
    is_paused = getattr(subscription, "pause_collection", None) is not None
    return PAUSED if is_paused and status in PAUSABLE else status


def _is_licence(client: stripe.StripeClient, subscription: stripe.Subscription) -> bool:
    """Returns whether a subscription has one of ``STRIPE_PRODUCTS``, if there are any."""
    wanted = set(settings.STRIPE_PRODUCTS)
    if not wanted:
        return True
    # By key: the attribute of this name is a method of older releases of the library.
    items = subscription["items"]
    if _has_any(items.data, wanted):
        return True
    if not items.has_more:
        return False
    more = client.v1.subscription_items.list({"subscription": subscription.id, "limit": PAGE})
    return _has_any(more.data, wanted)


def _has_any(items: Iterable[stripe.SubscriptionItem], wanted: Container[str]) -> bool:
    prices = (each.price for each in items)
    return any(price.id in wanted or _id(price.product) in wanted for price in prices)


def _page(
    client: stripe.StripeClient, asked: SubscriptionListParams
) -> stripe.ListObject[stripe.Subscription]:
    for wait in RATE_LIMIT_WAITS:
        try:
            return client.v1.subscriptions.list(asked)
        except stripe.RateLimitError:
            sleep(wait)
    return client.v1.subscriptions.list(asked)


@contextmanager
def _asking() -> Iterator[stripe.StripeClient]:
    """A client whose errors are raised as ``BillingUnavailable``."""
    release_connection()
    with requests.Session() as session:
        # Ignores proxies and credentials of the environment.
        session.trust_env = False
        try:
            yield _client(session)
        except stripe.StripeError as error:
            raise BillingUnavailable(f"Stripe could not be reached: {_kind(error)}") from None
        except (AttributeError, LookupError, TypeError, ValueError):
            raise BillingUnavailable("Stripe returned something that is not a list.") from None


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


def _is_about_them(error: stripe.StripeError) -> bool:
    """Returns whether an error is about this customer, not about the key, the rate or Stripe itself."""
    status = error.http_status or 0
    # Stripe once answered 400 for an exceeded rate limit.
    too_many = isinstance(error, stripe.RateLimitError)
    return 400 <= status < 500 and status not in OF_EVERYBODY and not too_many


def _kind(error: stripe.StripeError) -> str:
    """The class and status of an error, without its message, which may contain the key."""
    return f"{type(error).__name__}, status {error.http_status or '-'}."


def _id(named: str | stripe.Customer | stripe.Product) -> str:
    return named if isinstance(named, str) else named.id


def _text(status: object) -> str:
    if not isinstance(status, str):
        raise TypeError("a status must be a string")
    return status
