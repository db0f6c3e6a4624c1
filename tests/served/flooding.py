"""A flood of sign-ins, as a program: ``python -m tests.served.flooding PORT SECONDS ADDRESSES``.

It runs beside what is measured, lest it slow down the measuring itself, and prints one line of JSON: how many answers
of each status there were, and how many of those with 503 did not say when to come back.
"""

import json
import sys
import time
from collections import Counter
from http.client import HTTPConnection
from threading import Lock, Thread

HOST = "127.0.0.1"
PATIENCE = 60.0


def flood(port: int, seconds: float, addresses: int) -> dict[str, object]:
    statuses: Counter[int] = Counter()
    lock, end = Lock(), time.monotonic() + seconds
    silent = 0

    def sign_in_without_pause(number: int) -> None:
        nonlocal silent
        source = (f"127.60.{number}.1", 0)
        connection = HTTPConnection(HOST, port, timeout=PATIENCE, source_address=source)
        body = json.dumps({"email": f"flood-{number}@served.test", "password": "a wrong password"})
        while time.monotonic() < end:
            connection.request("POST", "/v1/auth/login", body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            response.read()
            with lock:
                statuses[response.status] += 1
                silent += response.status == 503 and not response.headers["Retry-After"]
        connection.close()

    threads = [Thread(target=sign_in_without_pause, args=(n,)) for n in range(addresses)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {"statuses": statuses, "silent": silent}


if __name__ == "__main__":
    _, port, seconds, addresses = sys.argv
    print(json.dumps(flood(int(port), float(seconds), int(addresses))))
