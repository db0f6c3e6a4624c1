"""Checks that nothing grows: ``python -m tests.soak [--minutes 20] [--docs]``, beside ``tests.tools with``.

Every surface is asked a few times a second while now and then something fails. ``--docs`` writes the page in docs/,
otherwise it is in ``.local/soak``. The exit code is 1 where something grew.
"""

import argparse
import importlib
import os
import signal
import sys
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path

import django

from tests.tools.folders import LOCAL, ROOT, claim


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--docs", action="store_true")
    options = parser.parse_args(arguments)
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    django.setup()
    # They import models, which exist only now.
    course = importlib.import_module("tests.soak.course")
    page = importlib.import_module("tests.soak.page")
    with tempfile.TemporaryDirectory(prefix="soak-") as name:
        soaked = course.soak(Path(name), nullcontext, seconds=options.minutes * 60)
    folder = ROOT / "docs" if options.docs else claim(claim(LOCAL) / "soak")
    grew = page.write(soaked, folder, day=time.strftime("%Y-%m-%d", time.gmtime()))
    print(*(grew or ["nothing grew"]), sep="\n", flush=True)
    return 1 if grew else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
