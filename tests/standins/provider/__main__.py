"""Start the stand-in provider: `python -m tests.standins.provider --host 127.0.0.1 --port 0`."""

import argparse
import asyncio
import os
import resource
import signal
import sys

from tests.standins.provider import directive
from tests.standins.provider.site import StandIn
from tests.standins.provider.wire import Connection

BACKLOG = 2048


def main() -> int:
    """Serve until told to stop; the exit status."""
    options = _parser().parse_args()
    _allow_many_files()
    try:
        asyncio.run(_serve(options))
    except OSError as error:
        where = f"{options.host}:{options.port}"
        sys.stderr.write(f"cannot listen on {where}: {error.strerror or error}\n")
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.standins.provider",
        description="A local OpenAI-compatible stand-in for a model provider.",
        epilog=directive.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one, and says which")
    parser.add_argument("--api-key", help="the only key to accept; without it, any")
    parser.add_argument(
        "--until-eof", action="store_true", help="also stop when standard input ends"
    )
    return parser


def _allow_many_files() -> None:
    """Every open stream is a file, and the usual soft limit is 1,024."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


async def _serve(options: argparse.Namespace) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    if options.until_eof:
        loop.add_reader(sys.stdin.fileno(), _stop_at_end, stop)
    site = StandIn(options.api_key)
    server = await loop.create_server(
        lambda: Connection(site.answer), options.host, options.port, backlog=BACKLOG
    )
    host, port = server.sockets[0].getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    sys.stdout.write(f"listening on http://{shown}:{port}/v1\n")
    sys.stdout.flush()
    await stop.wait()
    server.close()


def _stop_at_end(stop: asyncio.Event) -> None:
    if not os.read(sys.stdin.fileno(), 4096):
        stop.set()


if __name__ == "__main__":
    sys.exit(main())
