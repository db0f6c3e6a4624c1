"""Starts the stand-in provider: `python -m tests.standins.provider --host 127.0.0.1 --port 0`."""

import argparse
import resource
import signal
import sys

import gevent
from gevent.os import tp_read
from gevent.pywsgi import WSGIServer

from tests.standins.provider import behaviour
from tests.standins.provider.server import Handler, Provider

BACKLOG = 4096


def main() -> None:
    """Serves until it is stopped."""
    options = _options()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    server = WSGIServer(
        (options.host, options.port),
        Provider(options.api_key),
        backlog=BACKLOG,
        log=None,
        handler_class=Handler,
        **({"certfile": options.certificate} if options.certificate else {}),
    )
    server.start()
    for number in (signal.SIGTERM, signal.SIGINT):
        gevent.signal_handler(number, sys.exit, 0)
    scheme = "https" if options.certificate else "http"
    print(f"listening on {scheme}://{options.host}:{server.server_port}/v1", flush=True)
    if options.until_eof:
        tp_read(sys.stdin.fileno(), 1)
    else:
        server.serve_forever()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.standins.provider",
        description="A local OpenAI-compatible stand-in for a model provider.",
        epilog=behaviour.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--api-key", help="the only key to accept; without it, any")
    parser.add_argument("--certificate", help="a PEM file with key and certificate, for TLS")
    parser.add_argument("--until-eof", action="store_true", help="stop when standard input ends")
    return parser.parse_args()


if __name__ == "__main__":
    main()
