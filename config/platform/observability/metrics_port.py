"""Serves the metrics of all web processes on a separate port: a program that gunicorn's master starts.

``python -m config.platform.observability.metrics_port LISTENER LIFE``, two open file descriptors. The web processes
write their numbers into files of ``PROMETHEUS_MULTIPROC_DIR``, so a scrape costs them nothing and a killed process
loses none. The program exits with the last process that has the other end of LIFE open, however that one ended.
"""

import os
import shutil
import signal
import socket
import sys
from pathlib import Path
from threading import Thread
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.mmap_dict import MmapedDict
from prometheus_client.multiprocess import MultiProcessCollector

from config.platform.observability.metrics_serving import ENDED, VARIABLE, lives, reserve

# Timeout of a client: a slow one delays the others.
CLIENT_SECONDS = 5


def fold_ended(folder: Path) -> None:
    """Adds the counts of ended processes to one file of each kind, so that restarts do not fill the disk."""
    for file in folder.glob("*.db"):
        kind, _, number = file.stem.rpartition("_")
        if number == str(ENDED) or lives(number):
            continue
        # Gauges of a process end with it.
        if not kind.startswith("gauge"):
            kept = MmapedDict(str(folder / f"{kind}_{ENDED}.db"))
            for key, value, _, _ in MmapedDict.read_all_values_from_file(str(file)):
                kept.write_value(key, kept.read_value(key)[0] + value, 0.0)
            kept.close()
        file.unlink()


class _Folder:
    """One reader and one scrape at a time, so that no ended process is counted twice."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._all = MultiProcessCollector(None, str(folder))

    def collect(self) -> object:
        fold_ended(self._folder)
        return self._all.collect()


class _Handler(WSGIRequestHandler):
    timeout = CLIENT_SECONDS

    def log_message(self, *_: object) -> None:
        """Writes no line for a scrape."""


def _end_with_the_last(life: int, folder: Path) -> None:
    os.read(life, 1)
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(0)


def main(listener: int, life: int) -> None:
    # A stopping service is measured to its end.
    for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(each, signal.SIG_IGN)
    folder = Path(os.environ[VARIABLE])
    reserve(folder, ENDED)
    Thread(target=_end_with_the_last, args=(life, folder), daemon=True).start()
    registry = CollectorRegistry()
    registry.register(_Folder(folder))  # type: ignore[arg-type]
    server = WSGIServer(("", 0), _Handler, bind_and_activate=False)
    server.socket.close()
    server.socket = socket.socket(fileno=listener)
    server.socket.setblocking(True)
    server.server_name, server.server_port = "metrics", 0
    server.setup_environ()
    server.set_app(make_wsgi_app(registry))
    server.serve_forever()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
