#!/usr/bin/env python3
"""Django's command line, with the environment of a local run where there is one."""

import os
import sys
from pathlib import Path

from django.core.management import execute_from_command_line

from config.platform.env.addresses import owner_address
from config.platform.env.reading import env

LOCAL = Path(__file__).resolve().parent / ".local" / "env"
BY_OWNER = {"migrate", "split_database_roles"}
UNSET = "Environment variable not set."
HINT = f"{LOCAL} keeps no secret that `make run` was given, and no address with one; export them here too."


def main() -> None:
    """Runs a command; variables of the process environment take precedence over those of `make run`."""
    try:
        is_local = bool(env.read_env(LOCAL, recurse=False))
    except PermissionError:
        sys.exit(f"{LOCAL} belongs to another user; run as that user, or in a copy of your own.")
    command = "".join(sys.argv[1:2])
    if command in BY_OWNER and (owner := owner_address(LOCAL)):
        os.environ["DATABASE_OWNER_URL"] = owner
        if command == "migrate":
            os.environ.pop("DATABASE_URL_FILE", None)
            os.environ["DATABASE_URL"] = owner
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    try:
        execute_from_command_line(sys.argv)
    except SystemExit as end:
        # Settings that cannot be read end the command with a text that names each variable.
        if is_local and UNSET in str(end.code):
            end.code = f"{end.code}\n{HINT}"
        raise


if __name__ == "__main__":
    main()
