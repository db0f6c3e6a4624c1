"""The models of plans, the licences of clients, notices to shells and held suspensions."""

from licensing.models.licences import (
    APP_SLUG,
    DevicesFull,
    HeldSuspension,
    Licence,
    Plan,
    Standing,
    entitlement_list,
    merged,
)
from licensing.models.notices import ServiceNotice, ShellNotice

__all__ = [
    "APP_SLUG",
    "DevicesFull",
    "HeldSuspension",
    "Licence",
    "Plan",
    "ServiceNotice",
    "ShellNotice",
    "Standing",
    "entitlement_list",
    "merged",
]
