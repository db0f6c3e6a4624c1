"""Large embeddings at once from one person: what becomes of them, and of the memory and the others of a process.

``python -m tests.bench.large_answers`` is their provider, which prints its port.
"""

import json
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.bench.processes import rss_mib
from tests.tools.folders import ROOT

HOST = "127.0.0.1"
MODEL, INPUTS, DIMENSIONS = "embed", 900, 3_072
BODY = json.dumps({"model": MODEL, "input": ["hello"] * INPUTS, "encoding_format": "float"})
PATIENCE = 600.0
LOOKS_EVERY = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """``codes`` and ``sizes`` count the answers; ``longest`` is the longest status of another person meanwhile (s)."""

    codes: dict[int, int]
    sizes: dict[int, int]
    longest: float
    most_mib: float


@contextmanager
def provider() -> Iterator[str]:
    """The address of a provider whose every answer has 59 MB."""
    command = [sys.executable, "-m", "tests.bench.large_answers"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield f"http://{HOST}:{int(process.stdout.readline())}/v1"
        finally:
            process.kill()


def ask_at_once(*, port: int, workers: Sequence[int], token: str, other: str, number: int) -> Seen:
    """Asks so often at the same moment with one token, and again and again for a status with another."""
    codes: Counter[int] = Counter()
    sizes: Counter[int] = Counter()

    def ask() -> None:
        status, size = _asked(port, "POST", "/v1/llm/embeddings", token, BODY)
        codes[status] += 1
        sizes[size] += 1

    asking = [threading.Thread(target=ask) for _ in range(number)]
    for each in asking:
        each.start()
    longest, most = 0.0, 0.0
    while any(each.is_alive() for each in asking):
        began = time.monotonic()
        status, _ = _asked(port, "GET", "/v1/license/status", other)
        assert status == 200, status
        longest = max(longest, time.monotonic() - began)
        most = max(most, *map(rss_mib, workers))
        time.sleep(LOOKS_EVERY)
    return Seen(codes=dict(codes), sizes=dict(sizes), longest=longest, most_mib=most)


def _asked(
    port: int, method: str, path: str, token: str, body: str | None = None
) -> tuple[int, int]:
    connection = HTTPConnection(HOST, port, timeout=PATIENCE)
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    connection.request(method, path, body, headers)
    response = connection.getresponse()
    size = 0
    while part := response.read(1024 * 1024):
        size += len(part)
    connection.close()
    return response.status, size


def _answer() -> bytes:
    numbers = random.Random(7)
    vector = ",".join(f"{numbers.uniform(-1, 1):.18f}" for _ in range(DIMENSIONS))
    items = (
        f'{{"object":"embedding","index":{at},"embedding":[{vector}]}}' for at in range(INPUTS)
    )
    usage = f'{{"prompt_tokens":{INPUTS},"total_tokens":{INPUTS}}}'
    return f'{{"object":"list","data":[{",".join(items)}],"model":"m","usage":{usage}}}'.encode()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    answer = b""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(self.answer)))
        self.end_headers()
        self.wfile.write(self.answer)

    def log_message(self, *_: object) -> None:
        """Writes nothing."""


if __name__ == "__main__":
    _Handler.answer = _answer()
    with ThreadingHTTPServer((HOST, 0), _Handler) as server:
        print(server.server_address[1], flush=True)
        server.serve_forever()
