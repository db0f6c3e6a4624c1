"""Loggers, their handlers and levels, as ``logging.config.dictConfig`` reads them."""

from typing import Any, Final

LOG_SETTINGS: Final[dict[str, Any]] = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"json": {"()": "config.platform.observability.logs.AllowListFormatter"}},
    "filters": {"cause": {"()": "config.platform.observability.database_causes.Cause"}},
    "handlers": {
        "out": {"class": "logging.StreamHandler", "formatter": "json"},
        # A logger without any handler would print its warnings as they are.
        "nowhere": {"class": "logging.NullHandler"},
    },
    "root": {"handlers": ["out"], "level": "INFO"},
    "loggers": {
        # Removes Django's own handlers: a console and mails.
        "django": {"handlers": []},
        # These write paths and messages, which may carry tokens; config.platform.edge.request_log logs the route.
        "django.request": {"handlers": ["nowhere"], "propagate": False},
        "django.security": {"handlers": ["nowhere"], "propagate": False},
        # Each command would log a line for each task at its start.
        "procrastinate.blueprints": {"level": "WARNING"},
        "procrastinate.periodic": {"level": "WARNING"},
        # Its text names the server and the role.
        "psycopg.pool": {"filters": ["cause"]},
        # It logs two lines per page read.
        "stripe": {"level": "WARNING"},
        "django.server": {"handlers": ["nowhere"], "propagate": False},
        "opentelemetry": {"handlers": ["nowhere"], "propagate": False},
    },
}
