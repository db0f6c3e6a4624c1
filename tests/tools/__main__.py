"""``python -m tests.tools run``, ``env`` and ``with [--] CMD…``."""

import argparse
import os
import signal
import sys
from pathlib import Path

from tests.tools import Unready
from tests.tools.children import die_with
from tests.tools.folders import LOCAL
from tests.tools.run import ensure_environment, run
from tests.tools.stops import Stopped, listen_for_stops
from tests.tools.throwaway import beside_servers


def main(arguments: list[str]) -> int:
    """The exit code: 0 also for Ctrl-C on `run`, 143 for SIGTERM, 1 for a failed start or a death."""
    options = _parser().parse_args(arguments)
    if "MAKELEVEL" in os.environ:
        # A signal that ends make ends its command too.
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
        # Ctrl-C is the usual end of a run.
        is_usual = options.action == "run" and stop.number == signal.SIGINT
        return 0 if is_usual else 128 + stop.number


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.tools", description=__doc__)
    actions = parser.add_subparsers(dest="action", required=True)
    for name, text in (
        ("run", "start everything and watch over it"),
        ("env", "write the environment file where there is none"),
    ):
        action = actions.add_parser(name, help=text)
        where = "the folder of data, logs and secrets"
        action.add_argument("--folder", type=Path, default=LOCAL, help=where)
    beside = actions.add_parser("with", help="run a command beside its own PostgreSQL and Redis")
    beside.add_argument("command", nargs=argparse.REMAINDER, metavar="CMD")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
