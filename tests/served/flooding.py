"""A flood, as a program: ``python -m tests.served.flooding PORT SECONDS ADDRESSES [TOKEN]``.

Of sign-ins, or with a person's access token of their telemetry, made to take long to check. It runs beside what is
measured, lest it slow down the measuring itself, and prints one line of JSON: how many answers of each status there
were, and how many of those with 503 did not say when to come back.
"""

import json
import sys
import time
from collections import Counter
from datetime import UTC, datetime
from http.client import HTTPConnection
from threading import Lock, Thread
from uuid import uuid4

HOST = "127.0.0.1"
PATIENCE = 60.0


def flood(port: int, seconds: float, addresses: int, token: str = "") -> dict[str, object]:
    statuses: Counter[int] = Counter()
    lock, end = Lock(), time.monotonic() + seconds
    silent = 0

    def ask_without_pause(number: int) -> None:
        nonlocal silent
        source = (f"127.60.{number}.1", 0)
        connection = HTTPConnection(HOST, port, timeout=PATIENCE, source_address=source)
        headers = {"Content-Type": "application/json"}
        headers |= {"Authorization": f"Bearer {token}"} if token else {}
        path = "/v1/telemetry" if token else "/v1/auth/login"
        body = json.dumps(crafted_batch() if token else sign_in(number))
        while time.monotonic() < end:
            connection.request("POST", path, body, headers)
            response = connection.getresponse()
            response.read()
            with lock:
                statuses[response.status] += 1
                silent += response.status == 503 and not response.headers["Retry-After"]
        connection.close()

    threads = [Thread(target=ask_without_pause, args=(n,)) for n in range(addresses)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {"statuses": statuses, "silent": silent}


def sign_in(number: int) -> dict[str, str]:
    return {"email": f"flood-{number}@served.test", "password": "a wrong password"}


def crafted_batch() -> dict[str, object]:
    """0.9 MB of names that become equal once they are scrubbed, beside those that they are numbered as."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    names = {f"[email] {501 + number}": 0 for number in range(500)}
    addresses = [f"{one}{two}{three}@b.cc" for one in "ab" for two in letters for three in letters]
    names |= dict.fromkeys(addresses[:550], 0)
    at = datetime.now(UTC).isoformat()
    event = {"name": "crafted", "occurred_at": at, "properties": names}
    return {"events": [{**event, "id": str(uuid4())} for _ in range(50)]}


if __name__ == "__main__":
    _, port, seconds, addresses, *token = sys.argv
    print(json.dumps(flood(int(port), float(seconds), int(addresses), *token)))
