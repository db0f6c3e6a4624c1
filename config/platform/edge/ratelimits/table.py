"""The rate limits by name, what each allows by default, and which paths count under which.

The limits guard against abuse; ``usage/caps.py`` limits the cost of calls.
``RATE_LIMITS`` overrides the numbers.
"""

from collections.abc import Mapping
from functools import cache
from typing import Literal

from django.conf import settings

AddressLimit = Literal["auth.ip", "status.ip", "publish.ip"]
KeyedLimit = Literal["llm.user", "counts.user", "telemetry.user", "connections.user", "api.user"]
FailureLimit = Literal["auth.account", "auth.all"]
Limit = AddressLimit | KeyedLimit | FailureLimit

DEFAULTS: Mapping[Limit, str] = {
    # All of /v1/auth/, the admin's login and second factor, and the account pages' forms.
    "auth.ip": "60/m",
    # Failed logins only: of one account from anywhere, and of everyone together.
    "auth.account": "10/m",
    "auth.all": "1000/m",
    "status.ip": "600/m",
    # Model calls, not listings.
    "llm.user": "30/m",
    # Counts of prompts, which cost no tokens; programs request several with each call. A large one counts several
    # times: 8 MB take a second of CPU time.
    "counts.user": "120/m",
    "publish.ip": "10/m",
    "telemetry.user": "60/m",
    # Calls that reach a third party, where all people share the service's one OAuth client.
    "connections.user": "20/m",
    # Everything else of a person. A shell that polls as documented sends a few a minute.
    "api.user": "600/m",
}
# Forms that take a password or a code.
AUTH_PAGES = ("/admin/login", "/admin/second-factor/", "/admin/passkeys/", "/account/")
PERIODS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def limit_of(method: str, path: str) -> AddressLimit | None:
    """Returns the limit per address that a request counts under."""
    if path.startswith("/v1/auth/"):
        return "auth.ip"
    if path == "/v1/license/status":
        return "status.ip"
    if path.startswith("/v1/internal/"):
        return "publish.ip"
    if method == "POST" and path.startswith(AUTH_PAGES):
        return "auth.ip"
    return None


def allowance(name: Limit) -> tuple[int, int]:
    """Returns how many a limit allows, and in how many seconds."""
    return _parsed(settings.RATE_LIMITS.get(name) or DEFAULTS[name])


@cache
def _parsed(rate: str) -> tuple[int, int]:
    """Parses ``10/m`` or ``5/2s``, which the environment's reader has checked."""
    allowed, _, period = rate.partition("/")
    return int(allowed), int(period[:-1] or 1) * PERIODS[period[-1]]
