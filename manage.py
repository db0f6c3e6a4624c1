#!/usr/bin/env python3
"""Django's command line, with the environment of a local run where there is one."""

import os
import sys

from django.core.management import execute_from_command_line

from config.local import environment

if __name__ == "__main__":
    environment.load()
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    execute_from_command_line(sys.argv)
