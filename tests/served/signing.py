"""Prints tokens of new people as JSON, for the service and database of its environment: ``python -m … NUMBER``.

A token names the issuer of the settings, which are read once in a process.
"""

import json
import os
import sys
from contextlib import nullcontext
from urllib.parse import urlsplit

import django

django.setup()

from tests.bench.callers import make_callers  # noqa: E402
from tests.served.database import Database  # noqa: E402

if __name__ == "__main__":
    database = Database(urlsplit(os.environ["DATABASE_URL"]).path.lstrip("/"), nullcontext)
    print(json.dumps([each.access for each in make_callers(database, int(sys.argv[1]))]))
