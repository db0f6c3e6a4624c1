"""Loggers, their handlers and levels, for ``logging.config.dictConfig``."""

from typing import Any, Final

LOG_SETTINGS: Final[dict[str, Any]] = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"json": {"()": "config.platform.observability.logs.AllowListFormatter"}},
    "filters": {"cause": {"()": "config.platform.observability.database_causes.Cause"}},
    "handlers": {
        "out": {"class": "logging.StreamHandler", "formatter": "json"},
        # A logger without any handler would print its warnings unformatted.
        "nowhere": {"class": "logging.NullHandler"},
    },
    "root": {"handlers": ["out"], "level": "INFO"},
    "loggers": {
        # Removes Django's own handlers: a console and mails.
        "django": {"handlers": []},
        # These log paths and messages, which may contain tokens; config.platform.edge.request_log logs the route.
        "django.request": {"handlers": ["nowhere"], "propagate": False},
        "django.security": {"handlers": ["nowhere"], "propagate": False},
        # It would log a line per task at the start of each command.
        "procrastinate.blueprints": {"level": "WARNING"},
        "procrastinate.periodic": {"level": "WARNING"},
        # Its messages contain the server and the role.
        "psycopg.pool": {"filters": ["cause"]},
        # It logs two lines per page read.
        "stripe": {"level": "WARNING"},
        "django.server": {"handlers": ["nowhere"], "propagate": False},
        "opentelemetry": {"handlers": ["nowhere"], "propagate": False},
    },
}
