"""Calls that are due at fixed moments, however long others take, and how long each took from then on."""

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from http.client import HTTPConnection
from itertools import chain

HOST = "127.0.0.1"
# As many calls may be late at once without the next one being late as well.
CONNECTIONS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """One call of a person's, due again every so many seconds, for so long."""

    token: str
    method: str = "GET"
    path: str = "/v1/license/status"
    body: str | None = None
    every: float = 0.01
    seconds: float = 8.0


def probed(port: int, probe: Probe) -> list[float]:
    """Seconds from when each call was due until it was answered; all must have been, and well."""
    headers = {"Authorization": f"Bearer {probe.token}"}
    if probe.body is not None:
        headers["Content-Type"] = "application/json"
    calls = int(probe.seconds / probe.every)

    def ask(number: int) -> list[float]:
        took = []
        with closing(HTTPConnection(HOST, port, timeout=30)) as connection:
            for due in range(number, calls, CONNECTIONS):
                at = began + due * probe.every
                time.sleep(max(0.0, at - time.monotonic()))
                connection.request(probe.method, probe.path, probe.body, headers)
                answer = connection.getresponse()
                answer.read()
                assert answer.status == 200, f"{probe.path}: {answer.status}"
                took.append(time.monotonic() - at)
        return took

    began = time.monotonic()
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        return list(chain.from_iterable(pool.map(ask, range(CONNECTIONS))))
