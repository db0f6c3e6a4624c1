"""``python -m tests.tools run``, ``env`` and ``with [--] CMD…``."""

import argparse
import os
import signal
import sys
from pathlib import Path

from tests.tools import Unready
from tests.tools.beside import beside_servers
from tests.tools.children import die_with
from tests.tools.embedded import ensure_environment
from tests.tools.folders import LOCAL
from tests.tools.run import run
from tests.tools.stops import Stopped, listen_for_stops


def main(arguments: list[str]) -> int:
    """The exit code: 0 also for Ctrl-C on `run`, 143 for SIGTERM, 1 for what could not start or has died."""
    options = _parser().parse_args(arguments)
    if "MAKELEVEL" in os.environ:
        # make and what it runs are one to whoever ends make.
        die_with(os.getppid(), signal.SIGTERM)
    listen_for_stops()
    try:
        if options.action == "run":
            run(options.folder.absolute())
        if options.action == "env":
            ensure_environment(options.folder.absolute(), os.environ)
            return 0
        command = options.command[1:] if options.command[:1] == ["--"] else options.command
        return beside_servers(command)
    except Unready as error:
        print(f"\n{error}", file=sys.stderr, flush=True)
        return 1
    except Stopped as stop:
        # Ctrl-C is how a run is meant to end.
        run_ended = options.action == "run" and stop.number == signal.SIGINT
        return 0 if run_ended else 128 + stop.number


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.tools", description=__doc__)
    actions = parser.add_subparsers(dest="action", required=True)
    start = actions.add_parser("run", help="start everything and watch over it")
    write = actions.add_parser("env", help="write the environment file where there is none")
    for action in (start, write):
        where = "where data, logs and secrets are kept"
        action.add_argument("--folder", type=Path, default=LOCAL, help=where)
    beside = actions.add_parser(
        "with", help="run a command beside a PostgreSQL and a Redis of its own"
    )
    beside.add_argument("command", nargs=argparse.REMAINDER, metavar="CMD")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
