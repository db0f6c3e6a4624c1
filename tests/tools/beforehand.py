"""Says what stands in the way of `make run` before the installation, so by the standard library alone."""

import os
import sys
from collections.abc import MutableMapping
from contextlib import suppress
from pathlib import Path

from tests.tools import Unready, ports
from tests.tools.folders import LOCAL, claim, held


def read_files(environ: MutableMapping[str, str], *names: str) -> None:
    """Replaces ``NAME_FILE`` by the content of that file; the service reports a file that cannot be read."""
    for name in names:
        with suppress(OSError, ValueError):
            if path := environ.get(f"{name}_FILE"):
                environ[name] = Path(path).read_text().strip()
                del environ[f"{name}_FILE"]


if __name__ == "__main__":
    read_files(os.environ, "HOST", "PORT")
    try:
        with held(claim(LOCAL)):
            ports.chosen(os.environ)
    except Unready as error:
        sys.exit(f"\n{error}")
    except KeyboardInterrupt:
        sys.exit(130)
