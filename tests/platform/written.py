"""The log of the service, taken from the handler and formatter of the settings."""

import io
import json
import logging
from typing import Any


class Written(io.StringIO):
    """The stream of the service's own log handler."""

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.getvalue().splitlines()]

    def beside_requests(self) -> list[dict[str, Any]]:
        """The lines without those that every request gets."""
        return [line for line in self.lines() if line["event"] != "request"]

    def requests(self) -> list[dict[str, Any]]:
        return [line for line in self.lines() if line["event"] == "request"]


def service_handler() -> logging.StreamHandler[Any]:
    """The handler that settings give the root logger."""
    (handler,) = (
        each
        for each in logging.getLogger().handlers
        if isinstance(each, logging.StreamHandler)
        and type(each.formatter).__name__ == "AllowListFormatter"
    )
    return handler
