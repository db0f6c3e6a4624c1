"""Grants rows to the role of ``DATABASE_URL`` and ownership of tables to that of ``DATABASE_OWNER_URL``."""

from typing import Any

import dj_database_url
import psycopg
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.db import OperationalError, connection

from config.platform.db.roles import NotSplit, service_owns_nothing, split
from config.platform.env.addresses import owner_address

# Events are added and read; a function of the owner's deletes old ones.
APPEND_ONLY = ("accounts_auditevent",)


class Command(BaseCommand):
    help = (
        "Create the role of DATABASE_URL, if there is none, and let it work only with rows: the tables belong to the "
        "role of DATABASE_OWNER_URL. It is safe to run again."
    )

    def handle(self, *args: Any, **options: Any) -> None:
        owner = owner_address()
        if not owner:
            raise CommandError(
                "DATABASE_OWNER_URL is missing: the address with the role that owns the tables."
            )
        service = settings.DATABASES["default"]
        try:
            with _connected(owner) as connected:
                done = split(
                    connected,
                    role=service["USER"],
                    password=service["PASSWORD"],
                    append_only=APPEND_ONLY,
                )
        except NotSplit as obstacle:
            raise CommandError(str(obstacle)) from None
        except psycopg.Error as error:
            # The server's message contains names of objects and roles, but no values.
            raise CommandError(
                f"The owner was refused: {error.diag.message_primary or error}"
            ) from None
        for line in done:
            self.stdout.write(f"split_database_roles: {line}")
        _try_the_role()


def _connected(address: str) -> psycopg.Connection[Any]:
    """Opens a connection outside Django's settings, which have the service's role."""
    parts = dj_database_url.parse(address)
    options = {"connect_timeout": 10, "client_encoding": "UTF8", **parts.get("OPTIONS", {})}
    return psycopg.connect(
        dbname=parts["NAME"],
        user=parts["USER"],
        password=parts["PASSWORD"] or None,
        host=parts["HOST"] or None,
        port=parts["PORT"] or None,
        **options,
    )


def _try_the_role() -> None:
    try:
        connection.ensure_connection()
    except OperationalError as error:
        raise CommandError(f"DATABASE_URL does not connect with it: {error}") from None
    for warning in service_owns_nothing(None, ["default"]):
        raise CommandError(warning.msg)
