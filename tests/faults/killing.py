"""Processes that are killed at every step of what they do.

A step is an answer of a server that the process needs: the server has done what was asked, and nobody knows.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count
from secrets import token_urlsafe

import requests
from django.db.models.functions import Now
from procrastinate.contrib.django import app
from procrastinate.contrib.django.models import ProcrastinateJob, ProcrastinateWorker

from accounts.models import AuditEvent
from config.composition.operation.nightly import JOBS
from config.platform.jobs.queue import NIGHT
from licensing.models import Licence
from releases.models import ShellChannel
from tests.bench.callers import make_callers
from tests.faults.stage import CHANNELS, Stage
from tests.faults.sums import hurry, ledger_faults
from tests.faults.traffic import Traffic, forgetful, signed_in
from tests.served.cable import Cable, cable_to
from tests.served.service import Service
from tests.served.shell import Shell, stand_in
from tests.tools.children import Child, Program
from tests.tools.folders import ROOT
from tests.waiting import eventually

CHANNEL = CHANNELS[1]
# For one course; what is left of its steps then is told.
BUDGET_SECONDS = 60.0
# A publish has many steps, and tests/served/test_killed_publish.py knows the ones that tell.
PUBLISH_STEPS, MAIL_STEPS = 5, 3
PATIENCE = 90.0


class Trigger:
    """Kills at a step: 0 is the first request, which nobody gets; a later one is the answer of this number."""

    def __init__(self, cables: dict[str, Cable], kill: Callable[[], None]) -> None:
        self._cables, self._kill = cables, kill
        self._lock = threading.Lock()
        self._left = 0
        self.fired = threading.Event()

    @contextmanager
    def at(self, step: int) -> Iterator[None]:
        self._left = step
        self.fired.clear()
        for cable in self._cables.values():
            cable.tap = self._tap
        try:
            yield
        finally:
            for cable in self._cables.values():
                cable.tap = None

    def _tap(self, is_answer: bool) -> bool:
        """Returns whether something goes on its way."""
        with self._lock:
            if self.fired.is_set():
                return False
            due = is_answer and self._left == 1 if self._left else not is_answer
            if not due:
                self._left -= is_answer and self._left > 1
                return True
            self.fired.set()
            self._kill()
            return False


class Web:
    """A service of one worker, with cables of its own."""

    def __init__(self, service: Service, cables: dict[str, Cable]) -> None:
        self.service = service
        self.trigger = Trigger(cables, self._kill)
        self.kills = 0
        self.is_through = False

    def told(self) -> str:
        """Reports the number of kills, and whether there was time for the last step."""
        return f"{self.kills} kills{'' if self.is_through else ' in the time there was'}"

    def at(self, step: int, act: Callable[[], requests.Response]) -> requests.Response | None:
        """Returns the answer; None where it was killed, after which another worker is there."""
        answer: requests.Response | None = None
        with self.trigger.at(step):
            try:
                answer = act()
            except requests.RequestException:
                assert self.trigger.fired.is_set(), "it does not answer, and nobody has killed it"
        if not self.trigger.fired.is_set():
            self.is_through = True
            return answer
        self.kills += 1
        eventually(lambda: Shell(self.service.url).get("/healthz").status_code == 200)
        return None

    def _kill(self) -> None:
        for worker in self.service.workers():
            os.kill(worker, signal.SIGKILL)


@contextmanager
def web(stage: Stage, *names: str) -> Iterator[Web]:
    variables = {"postgres": "DATABASE_URL", "provider": "LLM_BASE_URL"}
    with ExitStack() as stack:
        cables = {name: stack.enter_context(cable_to(stage.cables[name].far)) for name in names}
        own = {"WEB_WORKERS": "1"}
        own |= {variables[name]: cables[name].url for name in names if name in variables}
        if "storage" in cables:
            old, new = stage.cables["storage"].url, cables["storage"].url
            own["STORAGE_URL"] = stage.environ["STORAGE_URL"].replace(old, new)
        service, _ = stack.enter_context(stage.other_service(own, worker=False))
        yield Web(service, cables)


def steps(seconds: float = BUDGET_SECONDS, *, by: int = 1) -> Iterator[int]:
    """0, 1, 2 … for as long."""
    until = time.monotonic() + seconds
    for step in count(0, by):
        if time.monotonic() > until:
            return
        yield step


def settling(stage: Stage, traffic: Traffic) -> str:
    """A call, whole and streamed, at each step; then the sweep."""
    person = make_callers(stage.database, 1, caps={})[0]
    answered: list[tuple[int, int]] = []
    begun = 0
    with web(stage, "postgres", "provider") as mortal:
        shell = signed_in(mortal.service, person)

        def call() -> requests.Response:
            nonlocal begun
            begun += 1
            return shell.complete(stand_in(f"tokens={10 + begun}"))

        for step in steps():
            answer = mortal.at(step, call)
            if answer is None:
                continue
            assert answer.status_code == 200, answer.text
            usage = answer.json()["usage"]
            answered.append((usage["prompt_tokens"], usage["completion_tokens"]))
            break
        kills = mortal.told()
        hurry(stage)
        mortal.service.manage("settle_abandoned_calls")
    faults = ledger_faults(stage, "killed", person.id, answered, begun)
    assert not faults, faults
    return f"{kills}; each of {begun} calls was settled once or never began"


def rotating(stage: Stage, traffic: Traffic) -> str:
    """A shell repeats with its key, and is never signed out."""
    person = make_callers(stage.database, 1, caps={})[0]
    with web(stage, "postgres") as mortal:
        shell = signed_in(mortal.service, person)
        for step in steps():
            key = token_urlsafe(24)
            answer = mortal.at(step, lambda: shell.refresh(key=key))  # noqa: B023
            if answer is not None:
                assert answer.status_code == 200, answer.text
                break
            again = shell.refresh(key=key)
            assert again.status_code == 200, f"step {step}: {again.status_code} {again.text}"
        kills = mortal.told()
    return f"{kills}; the repeat with the same key succeeded each time"


def publishing(stage: Stage, traffic: Traffic) -> str:
    """Readers have the old release or the new one, and a repeat finishes the job."""
    with web(stage, "postgres", "storage") as mortal:
        pipeline = replace(stage.pipeline, channel=CHANNEL, url=mortal.service.url)
        before = pipeline.made("2.0.0")
        assert pipeline.post(before).status_code in (200, 201)
        for step in steps(2 * BUDGET_SECONDS, by=PUBLISH_STEPS):
            release = pipeline.made(f"2.0.{step + 1}")
            answer = mortal.at(step, lambda: pipeline.post(release))  # noqa: B023
            if answer is not None:
                assert answer.status_code == 201, answer.text
                break
            assert pipeline.offered().content in (before.body, release.body)
            with stage.database.rows():
                ShellChannel.objects.filter(pk=CHANNEL).update(leased_until=Now())
            again = pipeline.post(release)
            assert again.status_code in (200, 201), f"step {step}: {again.text}"
            assert pipeline.offered().content == release.body
            before = release
        kills = mortal.told()
    return f"{kills}; old or new was offered, and a repeat finished each"


class Jobs:
    """The worker of queued work, with cables of its own and no other beside it."""

    def __init__(self, stage: Stage, cables: dict[str, Cable], environ: dict[str, str]) -> None:
        self._stage, self._environ = stage, environ
        self.trigger = Trigger(cables, self._kill)
        self.kills = 0
        self.child = self._start()

    def restart(self) -> None:
        """As a supervisor does; its database notices the death at once instead of after 45 s."""
        self.kills += 1
        self.child.stop()
        self.child = self._start()

    def stop(self) -> None:
        self.child.stop()

    def _start(self) -> Child:
        long_ago = datetime.now(UTC) - timedelta(hours=1)
        with self._stage.database.rows():
            ProcrastinateWorker.objects.update(last_heartbeat=long_ago)
        command = [sys.executable, "manage.py", "work"]
        log = self._stage.folder / "mortal-worker.log"
        child = Program(name="worker", command=command, log=log, environ=self._environ).start()
        eventually(self._is_there, seconds=PATIENCE)
        return child

    def _is_there(self) -> bool:
        lately = datetime.now(UTC) - timedelta(minutes=5)
        with self._stage.database.rows():
            return ProcrastinateWorker.objects.filter(last_heartbeat__gt=lately).exists()

    def _kill(self) -> None:
        os.kill(self.child.pid, signal.SIGKILL)


@contextmanager
def jobs(stage: Stage, **environ: str) -> Iterator[Jobs]:
    with ExitStack() as stack:
        names = ("postgres", "mail")
        cables = {name: stack.enter_context(cable_to(stage.cables[name].far)) for name in names}
        stack.enter_context(stage.without_worker())
        own = {"DATABASE_URL": cables["postgres"].url, "EMAIL_URL": cables["mail"].url, **environ}
        made = Jobs(stage, cables, {**stage.service.environ, **own})
        stack.callback(made.stop)
        yield made


def mailing(stage: Stage, traffic: Traffic) -> str:
    """Each mail comes; where its server had taken it before the death, twice."""
    people = iter(forgetful(stage, traffic.people["reset"], 100))
    sent: list[str] = []

    def came(email: str) -> int:
        return sum(email in mail.to for mail in list(stage.mail.mails))

    with jobs(stage) as worker:
        for step in steps(2 * BUDGET_SECONDS, by=MAIL_STEPS):
            email = next(people)
            with worker.trigger.at(step + 1):
                reset = Shell(stage.service.url).post("/v1/auth/password/reset", {"email": email})
                assert reset.status_code == 204, reset.text
                sent.append(email)
                fired = worker.trigger.fired
                eventually(lambda: fired.is_set() or came(email), seconds=PATIENCE)  # noqa: B023
            if fired.is_set():
                worker.restart()
        eventually(lambda: all(map(came, sent)), seconds=PATIENCE)
        kills = worker.kills
    twice = sum(came(each) > 1 for each in sent)
    return f"{kills} kills; {len(sent)} of {len(sent)} mails came, {twice} of them twice"


def at_night(stage: Stage, traffic: Traffic) -> str:
    """One night, which is killed after ever more steps, and goes on where it was."""
    since = datetime.now(UTC)

    def ended() -> list[str]:
        events = AuditEvent.objects.filter(action="nightly:done", at__gte=since)
        with stage.database.rows():
            return list(events.values_list("target", flat=True))

    with jobs(stage, NIGHTLY_AT=f"{since:%H:%M}") as worker:
        for step in steps(90.0, by=8):
            with worker.trigger.at(step + 8):
                with stage.database.rows():
                    _queue_night()
                fired = worker.trigger.fired
                eventually(lambda: fired.is_set() or len(ended()) >= len(JOBS), seconds=PATIENCE)  # noqa: B023
            if not fired.is_set():
                break
            worker.restart()
        eventually(lambda: len(ended()) >= len(JOBS), seconds=2 * PATIENCE)
        kills = worker.kills
    names = ended()
    assert sorted(names) == sorted(job.name for job in JOBS), f"jobs of the night: {names}"
    return f"{kills} kills; each of {len(JOBS)} jobs ended once"


def _queue_night() -> None:
    if not ProcrastinateJob.objects.filter(task_name=NIGHT, status="todo").exists():
        app.configure_task(NIGHT, queue="night").defer(timestamp=int(time.time()))


def sync(
    stage: Stage, traffic: Traffic, *, ill: Callable[..., AbstractContextManager[None]]
) -> str:
    """The nightly look at subscriptions, once while Stripe is ill and once after it."""
    with stage.database.rows():
        licences = Licence.objects.filter(client__in={p.client_id for p in traffic.people.values()})
        for number, licence in enumerate(licences):
            licence.stripe_customer_id = f"cus_{traffic.people['status'].id.hex[:8]}{number}"
            licence.save(update_fields=["stripe_customer_id"])
            stage.stripe.subscriptions.append((licence.stripe_customer_id, "active"))
    command = [sys.executable, "manage.py", "sync_subscriptions"]
    began = time.monotonic()
    with (
        ill("stripe", stage=stage),
        subprocess.Popen(
            command,
            cwd=ROOT,
            env=stage.service.environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as night,
    ):
        try:
            night.wait(60)
        except subprocess.TimeoutExpired:
            seconds = "was still at it after 60 s"
        else:
            seconds = f"ended with {night.returncode} after {time.monotonic() - began:.0f} s"
        stage.cables["stripe"].cut()
        night.terminate()
    stage.service.manage("sync_subscriptions")
    return f"the job {seconds}; the next one succeeded, and no licence changed"


def rest(seconds: float) -> None:
    """Lets traffic go on."""
    time.sleep(seconds)
