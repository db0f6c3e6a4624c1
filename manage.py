#!/usr/bin/env python3
"""Django's command line, with the environment of a local run where there is one."""

import os
import sys
from pathlib import Path

from django.core.management import execute_from_command_line

from config.env import env

LOCAL = Path(__file__).resolve().parent / ".local" / "env"


def _read_local_run() -> None:
    """Reads the variables of `make run`; those of the process environment take precedence."""
    try:
        env.read_env(LOCAL, recurse=False)
    except PermissionError:
        sys.exit(f"{LOCAL} belongs to another user; run as that user, or in a copy of your own.")


if __name__ == "__main__":
    _read_local_run()
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    execute_from_command_line(sys.argv)
