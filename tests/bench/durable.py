"""A PostgreSQL for the bench whose commits are on the disk before it says so."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

from tests.tools.children import Child
from tests.tools.folders import sockets_of
from tests.tools.postgres import Postgres


@contextmanager
def durable_database(folder: Path) -> Iterator[Child]:
    """``DATABASE_URL`` is its address for as long; the server's data goes with the folder."""
    with sockets_of(folder) as sockets:
        server = Postgres(folder=folder, sockets=sockets, log=folder / "postgres.log")
        child = server.start()
        try:
            with patch.dict(os.environ, {"DATABASE_URL": server.url}):
                yield child
        finally:
            child.stop()
