"""Background tasks and time limits, under plain threads and, in a process of its own, under gevent."""

import subprocess
import sys
import threading
import time

from config.greenlets import spawn, time_limit

UNDER_GEVENT = """
import gevent.monkey; gevent.monkey.patch_all()
import socket, threading, time, weakref
from config.greenlets import spawn, time_limit

near, far = socket.socketpair()
ended, began = threading.Event(), threading.Event()

class Held: pass

def reads():
    held = Held()
    kept.append(weakref.ref(held))
    began.set()
    try:
        near.recv(1)
    finally:
        ended.set()

kept = []
task = spawn(reads)
assert began.wait(5) and not ended.is_set()
task.kill()
task.kill()
assert ended.wait(5)
time.sleep(0.01)
assert kept[0]() is None

# A task that is killed before it begins does nothing.
ended.clear()
spawn(reads).kill()
assert not ended.wait(0.05)

def survives_os_errors():
    try:
        time.sleep(5)
    except OSError:
        time.sleep(5)

start = time.monotonic()
try:
    with time_limit(0.05):
        survives_os_errors()
except TimeoutError:
    print("limited", time.monotonic() - start < 2)
try:
    with time_limit(5), time_limit(-1):
        time.sleep(5)
except TimeoutError:
    print("inner first", time.monotonic() - start < 2)
with time_limit(5):
    print("in time")
try:
    with time_limit(5):
        raise KeyError("own")
except KeyError:
    print("errors pass")
near.close(), far.close()
"""


def test_a_thread_runs_beside_its_caller_and_ends_by_itself() -> None:
    done = threading.Event()
    released = threading.Event()

    def work(answer: str) -> None:
        assert released.wait(10)
        assert answer == "given"
        done.set()

    task = spawn(work, "given")
    task.kill()
    assert not done.is_set()
    released.set()
    assert done.wait(10)


def test_a_plain_thread_has_no_time_limit() -> None:
    with time_limit(0.0):
        time.sleep(0.01)


def test_under_gevent_tasks_are_killed_and_blocks_end_in_time() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", UNDER_GEVENT],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "limited True",
        "inner first True",
        "in time",
        "errors pass",
    ]
    assert done.stderr == ""
