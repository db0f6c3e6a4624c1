"""Background tasks and time limits, under plain threads and, in a process of its own, under gevent."""

import subprocess
import sys
import threading
from ast import literal_eval
from concurrent.futures import ThreadPoolExecutor

import pytest

from config.platform.concurrency import greenlets
from config.platform.concurrency.greenlets import WorkerThread, run_exclusively, spawn, within
from config.platform.problems.problem import ServiceUnavailable

UNDER_GEVENT = """
import gevent.monkey; gevent.monkey.patch_all()
import socket, threading, time, weakref
from config.platform.concurrency.greenlets import spawn, within

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
assert began.wait(60) and not ended.is_set()
task.kill()
task.kill()
assert ended.wait(60)
time.sleep(0.01)
assert kept[0]() is None

# A task that is killed before it begins does nothing.
ended.clear()
spawn(reads).kill()
assert not ended.wait(0.05)

def survives_os_errors():
    try:
        time.sleep(100)
    except OSError:
        time.sleep(100)

def own_error():
    raise KeyError("own")

start = time.monotonic()
try:
    within(0.05, survives_os_errors)
except TimeoutError as error:
    print("limited", time.monotonic() - start < 100, error.__context__)
start = time.monotonic()
try:
    within(100, within, -1, time.sleep, 100)
except TimeoutError:
    print("inner first", time.monotonic() - start < 100)
print(within(100, int, "7", base=8))
try:
    within(100, own_error)
except KeyError:
    print("errors pass")

near.close(), far.close()
"""

ASIDE = """
import gevent.monkey; gevent.monkey.patch_all()
import os, time
from gevent import spawn
from config.platform.concurrency.greenlets import WorkerThread

aside = WorkerThread("busy")

def spin(until):
    end = time.monotonic() + 60
    while len(ticks) < until and time.monotonic() < end:
        "x" * 1000
    return os.getpriority(os.PRIO_PROCESS, 0)

ticks = []
ticking = spawn(lambda: [ticks.append(time.sleep(0.005)) for _ in range(1000)])
asked = [spawn(aside.run, spin, until) for until in (10, 20)]
priorities = {each.get(timeout=150) for each in asked}
print("the loop went on", len(ticks) >= 20)
ticking.kill()
print("priority", priorities == {os.getpriority(os.PRIO_PROCESS, 0)})

try:
    aside.run(int, "x")
except ValueError:
    print("raised")
"""

SHARES = """
import gevent.monkey; gevent.monkey.patch_all()
from gevent import sleep, spawn
from gevent.monkey import get_original
from config.platform.concurrency import greenlets
from config.platform.concurrency.greenlets import WorkerThread
from config.platform.problems.problem import ServiceUnavailable

greenlets.SHARE_SECONDS = greenlets.QUEUE_SECONDS = 60
one, other = WorkerThread("one kind is busy", most_of_a_person=3), WorkerThread("another kind")
hold, done = get_original("_thread", "allocate_lock")(), []
hold.acquire()

def held(name):
    with hold:
        done.append(name)

def work(person, name):
    with one.share_of(person):
        one.run(done.append, f"{name} begins")
        one.run(held, name)

waiting = [spawn(work, "ada", f"ada {number}") for number in (1, 2, 3)]
while not done:
    sleep(0.01)
other.run(done.append, "another kind")
try:
    work("ada", "too many")
except ServiceUnavailable as refusal:
    print("refused", refusal.detail)
waiting.append(spawn(work, "eve", "eve"))
sleep(0.01)
hold.release()
[each.get(timeout=100) for each in waiting]
print(done)
print("forgotten", not one._shares)
"""

EXCLUSIVELY = """
import gevent.monkey; gevent.monkey.patch_all()
import os, threading, time, weakref
from gevent import spawn
from gevent.monkey import get_original
from config.platform.concurrency import greenlets
from config.platform.concurrency.greenlets import run_exclusively
from config.platform.problems.problem import ServiceUnavailable

greenlets.QUEUE_SECONDS = 60
sleep, running, most, order = get_original("time", "sleep"), [], [], []

def slow(number):
    running.append(number)
    most.append(len(running))
    # Until the loop has gone on twice.
    seen, end = len(ticks), time.monotonic() + 10
    while len(ticks) < seen + 2 and time.monotonic() < end:
        sleep(0.001)
    running.remove(number)
    order.append(number)
    return 2 * number

ticks = []
ticking = spawn(lambda: [ticks.append(time.sleep(0.005)) for _ in range(1000)])
asked = [spawn(run_exclusively, slow, number) for number in range(12)]
print("answers", [each.get(timeout=150) for each in asked] == [2 * each for each in range(12)])
ticking.kill()
print("in turn", order == list(range(12)), max(most))
print("the loop went on", len(ticks) > 12)

def nice():
    return os.getpriority(os.PRIO_PROCESS, 0)

print("nice", run_exclusively(nice), nice() < 19)

def fails():
    raise KeyError("own")

try:
    run_exclusively(fails)
except KeyError as error:
    print("raised", error)

class Password: pass

password = Password()
kept = weakref.ref(password)
run_exclusively(id, password)
del password
# The thread is of the lowest priority, also when it lets go of its work.
end = time.monotonic() + 60
while kept() is not None and time.monotonic() < end:
    time.sleep(0.01)
print("forgotten", kept() is None)

hold, order[:] = get_original("_thread", "allocate_lock")(), []
hold.acquire()

def held(number):
    running.append(number)
    with hold:
        order.append(number)

# One at work and the one after it, which the thread has at hand.
begun = [spawn(run_exclusively, held, number) for number in (1, 2)]
while not running:
    time.sleep(0.01)
time.sleep(0.01)
killed = spawn(run_exclusively, held, 3)
time.sleep(0.01)
killed.kill()
greenlets.QUEUE_SECONDS = 0.2
try:
    run_exclusively(held, 4)
except ServiceUnavailable as refusal:
    print("refused", refusal.headers["Retry-After"])
hold.release()
[each.get(timeout=100) for each in begun]
time.sleep(0.05)
print("done", order)
"""


def test_a_thread_runs_beside_its_caller_and_ends_by_itself() -> None:
    done = threading.Event()
    released = threading.Event()

    def work(answer: str) -> None:
        assert released.wait(60)
        assert answer == "given"
        done.set()

    task = spawn(work, "given")
    task.kill()
    assert not done.is_set()
    released.set()
    assert done.wait(60)


def test_a_plain_thread_has_no_time_limit() -> None:
    assert within(0.0, int, "7", base=8) == 7


def test_tasks_are_killed_and_blocks_end_in_time_under_gevent() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", UNDER_GEVENT],
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "limited True None",
        "inner first True",
        "7",
        "errors pass",
    ]
    assert done.stderr == ""


def test_argon2_runs_in_one_thread_of_lowest_priority_and_refuses_a_long_queue() -> None:
    done = subprocess.run(
        [sys.executable, "-c", EXCLUSIVELY],
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "answers True",
        "in turn True 1",
        "the loop went on True",
        "nice 19 True",
        "raised 'own'",
        "forgotten True",
        "refused 2",
        "done [1, 2]",
    ]


def test_callers_run_argon2_one_at_a_time_without_gevent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(greenlets, "QUEUE_SECONDS", 0.05)
    begun, may_end = threading.Event(), threading.Event()

    def slow() -> str:
        begun.set()
        assert may_end.wait(60)
        return "done"

    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(run_exclusively, slow)
        assert begun.wait(60)
        with pytest.raises(ServiceUnavailable) as refusal:
            run_exclusively(str)
        may_end.set()
        assert first.result(60) == "done"
    assert refusal.value.headers["Retry-After"] == "2"
    assert run_exclusively(int, "7") == 7


def test_the_loop_goes_on_beside_slow_python_code_under_gevent() -> None:
    done = subprocess.run(
        [sys.executable, "-c", ASIDE], capture_output=True, text=True, timeout=250, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["the loop went on True", "priority True", "raised"]


def test_a_persons_second_work_waits_and_neither_others_nor_another_kind_of_work_do() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SHARES], capture_output=True, text=True, timeout=250, check=False
    )
    assert done.returncode == 0, done.stderr
    refused, order, forgotten = done.stdout.splitlines()
    assert refused == "refused one kind is busy"
    names = literal_eval(order)
    assert names[:2] == ["ada 1 begins", "another kind"]
    # Of three pieces of work of one person, two begin after that of somebody else who came later.
    assert names.index("eve begins") < names.index("ada 2 begins") < names.index("ada 3 begins")
    assert "too many begins" not in names
    assert forgotten == "forgotten True"


def test_a_persons_second_work_waits_without_gevent_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(greenlets, "SHARE_SECONDS", 0.05)
    aside = WorkerThread("busy")
    with aside.share_of("ada"):
        with aside.share_of("eve"):
            assert aside.run(int, "7") == 7
        with ThreadPoolExecutor(1) as pool, pytest.raises(ServiceUnavailable):
            pool.submit(_take_share, aside, "ada").result(60)
    _take_share(aside, "ada")


def _take_share(aside: WorkerThread, person: str) -> None:
    with aside.share_of(person):
        pass
