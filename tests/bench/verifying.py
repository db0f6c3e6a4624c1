"""Limit of argon2id alone: processes that verify one password over and over.

``python -m tests.bench.verifying SECONDS`` is one of them: ready, it prints a line, waits for one, and prints how many
a second it verified.
"""

import os
import subprocess
import sys
import time
from contextlib import ExitStack

from argon2 import PasswordHasher

from config.platform.concurrency.greenlets import LOWEST_PRIORITY
from tests.tools.folders import ROOT

PASSWORD = "correct horse battery staple"
# As accounts/hashers.py has them.
TIME_COST, MEMORY_KIB, LANES = 2, 19 * 1024, 1


def rate(processes: int, *, seconds: float) -> float:
    """Verifications a second of so many processes together."""
    command = [sys.executable, "-m", "tests.bench.verifying", str(seconds)]
    with ExitStack() as running:
        started = [
            running.enter_context(
                subprocess.Popen(
                    command,
                    cwd=ROOT,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            for _ in range(processes)
        ]
        for each in started:
            assert each.stdout
            assert each.stdout.readline() == "ready\n"
        # Each is told to begin before the first is waited for.
        for each in started:
            assert each.stdin
            each.stdin.write("go\n")
            each.stdin.flush()
        return sum(float(each.communicate()[0]) for each in started)


def main(seconds: float) -> None:
    # As the service's own, so that whatever else runs on the machine takes from both alike.
    os.setpriority(os.PRIO_PROCESS, 0, LOWEST_PRIORITY)
    hasher = PasswordHasher(TIME_COST, MEMORY_KIB, LANES)
    hashed = hasher.hash(PASSWORD)
    print("ready", flush=True)
    sys.stdin.readline()
    began, done = time.perf_counter(), 0
    while (passed := time.perf_counter() - began) < seconds:
        hasher.verify(hashed, PASSWORD)
        done += 1
    print(done / passed)


if __name__ == "__main__":
    main(float(sys.argv[1]))
