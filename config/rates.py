"""The rate limits by name, and the numbers that ``RATE_LIMITS`` overrides. It is read before there are settings."""

from collections.abc import Mapping
from typing import Literal

AddressLimit = Literal["auth.ip", "status.ip", "publish.ip"]
KeyedLimit = Literal["llm.user", "telemetry.user"]
FailureLimit = Literal["auth.account", "auth.all"]

DEFAULTS: Mapping[AddressLimit | KeyedLimit | FailureLimit, str] = {
    # All of /v1/auth/, the admin's login and the account pages' forms.
    "auth.ip": "60/m",
    # Failed logins only: of one account from anywhere, and of everyone together.
    "auth.account": "10/m",
    "auth.all": "1000/m",
    "status.ip": "600/m",
    # Model calls, not listings.
    "llm.user": "30/m",
    "publish.ip": "10/m",
    "telemetry.user": "60/m",
}
