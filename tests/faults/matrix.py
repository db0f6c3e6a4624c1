"""Runs scenarios, one after the other, beside steady traffic: what callers got, how soon, and the sums."""

import hashlib
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from statistics import median

from config.platform.concurrency.greenlets import LOWEST_PRIORITY
from tests.faults.invariants import PATIENT, Watched, broken
from tests.faults.scenarios import WELL, Scenario
from tests.faults.stage import Stage
from tests.faults.sums import Sums, doubled_mails, faults_of, hurry, is_quiet, sums_of
from tests.faults.traffic import Seen, Traffic, flowing

BEFORE_SECONDS = 3.0
# After which nobody waits for traffic to be well again, and for queues to be empty by themselves.
RECOVERED_SECONDS, QUIET_SECONDS = 60.0, 10.0
LOOK_SECONDS = 0.25
# Good answers of each kind, in a row.
ENOUGH = 1


@dataclass(kw_only=True)
class Kind:
    """The experience of one kind of callers during a fault, and the seconds of recovery after it."""

    name: str
    outcomes: dict[str, int]
    p50: float
    longest: float
    recovered: float | None


@dataclass(kw_only=True)
class Outcome:
    """One row of the matrix. ``drained`` are the seconds until no call was open and no job was to be done."""

    name: str
    how: str
    skipped: str = ""
    said: str = ""
    seconds: float = 0.0
    delay: float = 0.0
    kinds: list[Kind] = field(default_factory=list)
    recovered: float | None = None
    drained: float | None = None
    is_hurried: bool = False
    doubled_mails: int = 0
    before: Sums | None = None
    after: Sums | None = None
    broken: dict[str, list[str]] = field(default_factory=dict)

    @property
    def longest(self) -> float:
        """Returns the longest wait of kinds that may not wait for minutes."""
        waits = (kind.longest for kind in self.kinds if kind.name not in PATIENT)
        return max(waits, default=0.0)

    @property
    def affected(self) -> list[Kind]:
        """Kinds that got anything but what they asked for."""
        return [kind for kind in self.kinds if set(kind.outcomes) != {"ok"}]


def run(stage: Stage, scenario: Scenario, traffic: Traffic) -> Outcome:
    outcome = Outcome(name=scenario.name, how=scenario.how)
    outcome.skipped = scenario.skipped(stage)
    if outcome.skipped:
        return outcome
    began = time.monotonic()
    with ExitStack() as stack:
        if scenario.environ is not None:
            environ = stack.enter_context(scenario.environ(stage))
            stack.enter_context(stage.without_worker())
            service, _ = stack.enter_context(stage.other_service(environ, afresh=True))
            stack.callback(traffic.lead_to, stage.service)
            traffic.lead_to(service)
        traffic.sign_in()
        traffic.seen = []
        known = set(faults_of(stage, traffic))
        mails = doubled_mails(stage, traffic)
        outcome.before = sums_of(stage)
        faults: list[str] = []
        with (
            _lateness(_of_waking) as late,
            _lateness(_of_hashing) as hashing,
            flowing(traffic),
        ):
            time.sleep(BEFORE_SECONDS)
            broke = time.monotonic()
            try:
                outcome.said = _break(stage, scenario, traffic)
            except Exception as error:  # noqa: BLE001 - the other scenarios go on
                faults.append(f"{type(error).__name__}: {str(error)[:300]}")
            healed = time.monotonic()
            stage.keep_going()
            _await_recovery(traffic, healed)
        outcome.delay = max(late)
        _await_quiet(stage, outcome)
        # Faults that another scenario left are listed there.
        faults += sorted(set(faults_of(stage, traffic)) - known)
        outcome.after = sums_of(stage)
        outcome.doubled_mails = doubled_mails(stage, traffic) - mails
    outcome.kinds = [
        _kind(name, traffic.seen, broke=broke, healed=healed) for name in traffic.kinds
    ]
    outcome.recovered = _latest([kind.recovered for kind in outcome.kinds])
    well = healed if scenario.name == WELL else broke
    traffic.note_usual(each for each in traffic.seen if each.at + each.silence < well)
    watched = Watched(
        seen=traffic.seen,
        sums=faults,
        delay=outcome.delay,
        usual={**traffic.usual, "login": traffic.usual.get("login", 0.0) + max(hashing)},
        patience={**PATIENT, **scenario.patience},
        expired=scenario.expired,
    )
    outcome.broken = broken(watched)
    outcome.seconds = time.monotonic() - began
    return outcome


def _break(stage: Stage, scenario: Scenario, traffic: Traffic) -> str:
    if scenario.act is not None:
        return scenario.act(stage, traffic)
    assert scenario.breaking is not None
    with scenario.breaking(stage):
        time.sleep(scenario.seconds)
    return ""


@contextmanager
def _lateness(look: Callable[[], float]) -> Iterator[list[float]]:
    """By how much a thread of this process is too late, again and again: what this machine itself adds to each wait."""
    late, over = [0.0], threading.Event()

    def watch() -> None:
        while not over.is_set():
            late.append(look())

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield late
    finally:
        over.set()
        thread.join()


def _of_waking() -> float:
    began = time.monotonic()
    time.sleep(LOOK_SECONDS)
    return time.monotonic() - began - LOOK_SECONDS


def _of_hashing() -> float:
    """At the lowest priority, as the service checks passwords; a few milliseconds where nobody else computes."""
    os.setpriority(os.PRIO_PROCESS, 0, LOWEST_PRIORITY)
    time.sleep(LOOK_SECONDS)
    began = time.monotonic()
    hashlib.scrypt(b"", salt=b"", n=2**12, r=8, p=1)
    return time.monotonic() - began


def _await_recovery(traffic: Traffic, healed: float) -> None:
    """Returns once each kind has been answered well again, some times in a row, or it takes too long."""
    until = healed + RECOVERED_SECONDS

    def is_well(kind: str) -> bool:
        last = [each for each in list(traffic.seen) if each.kind == kind and each.at > healed]
        return len(last) >= ENOUGH and all(each.is_good for each in last[-ENOUGH:])

    while time.monotonic() < until and not all(map(is_well, traffic.kinds)):
        time.sleep(LOOK_SECONDS)


def _await_quiet(stage: Stage, outcome: Outcome) -> None:
    """Jobs are tried again after ever longer waits, and a killed call is open until its time is over."""
    began = time.monotonic()
    while not is_quiet(stage):
        past = time.monotonic() - began
        if past > RECOVERED_SECONDS:
            return
        if past > QUIET_SECONDS:
            outcome.is_hurried = True
            hurry(stage)
        stage.keep_going()
        time.sleep(4 * LOOK_SECONDS)
    outcome.drained = time.monotonic() - began


def _kind(name: str, seen: list[Seen], *, broke: float, healed: float) -> Kind:
    own = sorted((each for each in seen if each.kind == name), key=lambda each: each.at)
    ill = [e for e in own if e.at < healed and e.at + e.silence > broke] or own[-1:]
    outcomes = Counter(each.code if each.is_good else f"{each.status} {each.code}" for each in ill)
    after = [each for each in own if each.at >= healed]
    bad = [number for number, each in enumerate(after) if not each.is_good]
    recovered: float | None = 0.0
    if bad:
        well = after[bad[-1] + 1 :]
        recovered = well[0].at - healed if well else None
    return Kind(
        name=name,
        outcomes=dict(outcomes.most_common()),
        p50=median(each.silence for each in ill),
        longest=max(each.silence for each in ill),
        recovered=recovered,
    )


def _latest(seconds: list[float | None]) -> float | None:
    """None where one is not over."""
    return None if None in seconds else max((each for each in seconds if each), default=0.0)
