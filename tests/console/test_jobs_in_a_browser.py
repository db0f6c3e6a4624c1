"""Operators' jobs, each done by clicking as the role whose work it is, at a desk and on a phone in the dark.

No page may scroll sideways, break the policy of scripts and styles, or lead where the role may not go.
"""

import json
import re
from contextlib import nullcontext
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pytest
from playwright.sync_api import Browser, Error, Page, Response, expect

from accounts.models import Role, User
from config.platform.periods import Period
from licensing.models import Plan
from llmproxy.models import LanguageModel, Provider, Route
from tests.browsers import LONGEST, SCREENS, chromium, note_complaints, take_act
from tests.conftest import PASSWORD
from tests.console.conftest import World, password_hash
from tests.console.test_every_act import app_versions
from tests.console.test_in_a_browser import DESK, base_url
from tests.releases import conftest as releasing
from tests.releases.conftest import Pipeline
from usage.latency.hours import count_hours
from usage.models import Budget, Refusal, UsageRecord
from usage.models.failures import FailedAttempt, Failures, What
from usage.spending.daily import count_days

__all__ = ["base_url"]

pytestmark = [pytest.mark.wire, pytest.mark.django_db(transaction=True)]

cdn, pipeline = releasing.cdn, releasing.pipeline
REQUEST, REFUSED = "01a21527-263a-7f44-8000-000000000001", "01a21527-263a-7f44-8000-000000000002"

# A role and a job; below it a step on each line.
JOBS: Final = f"""
licensing: create a client
    menu Clients
    act Add client
    fill Name = Cirrus
    press Add client
    told Cirrus
support: invite people
    menu Clients
    open Acme
    act Invite people
    fill Emails = ada@acme.test
    press Invite people
    told 1 person invited
support: find a person by a part, and by the beginning of an id
    find person-3
    see person-3@acme.test
    find {{person}}
    see person-0@acme.test
support: find an answered call by its request id
    find {REQUEST}
    see Timeline
    see {REQUEST}
support: why was this call refused
    find {REFUSED}
    see Monthly budget spent
    act Explain this person now
    see Why can’t they call models?
    see Budget
support: a client's whole story
    menu Clients
    open Acme
    see Spent this month
    act Activity
    see set the licence status of
licensing: grace, suspend, resume
    menu Clients
    open Acme
    act Change licence status
    tick Grace
    fill Grace period ends (UTC) = 2100-01-01T00:00
    fill Reason = Agreed.
    press Change licence status
    told is in its grace period
    act Suspend
    see Suspend Acme?
    see Running model calls end
    fill Reason = Unpaid.
    press Suspend Acme
    told is suspended
    act Resume
    see Resume Acme?
    fill Reason = Paid.
    press Resume Acme
    told is active
owner: what is configured
    menu Settings
    see Not configured
    see AUDIT_RETENTION_DAYS
    see Rate limits
auditor: what is configured
    menu Settings
    see Nobody can connect a third party.
licensing: change the apps beyond a plan
    menu Clients
    open Borealis
    act Change licence terms
    fill Beyond the plan = notes
    fill Reason = Bought.
    press Change licence terms
    told Beyond the plan: nothing → notes
support: grant an override and end it
    find person-5@acme.test
    open Grant an override
    fill Daily tokens = 5
    fill Until (UTC) = 2100-01-01T00:00
    fill Reason = Quarter end.
    press Grant override
    told is in effect
    find person-5@acme.test
    open End the override
    fill Reason = Done.
    press End the override
    told has ended
support: stop calls and restart them
    find person-0@acme.test
    act Stop model calls
    fill Reason = Loops.
    press Stop model calls
    told can no longer call models. 1 call will end
    act Restart model calls
    fill Reason = Mended.
    press Restart model calls
    told can call models again
support: end a session
    find person-1@acme.test
    open End session
    fill Reason = Laptop lost.
    press Sign person-1@acme.test out
    told ended
support: end all sessions
    find person-2@acme.test
    act End all sessions
    fill Reason = Laptop lost.
    press End all sessions
    told Signed out everywhere (1 device)
support: send a mail to reset a password
    find person-4@acme.test
    act Send reset email
    press Send reset email
    told on its way
owner: a one-time password
    find person-4@acme.test
    act Set one-time password
    fill Reason = No mail arrives.
    press Set a one-time password
    see One-time password
support: who was slow
    menu Latency & errors
    see By hour
    open 1 min 17 s
    see person-1@acme.test
licensing: which provider failed
    menu Latency & errors
    tab By provider
    see third
    menu Providers
    open third
    open Failed attempts
    see person-2@acme.test
licensing: what did this client spend last week
    menu Clients
    open Acme
    open Calls
    see in 7 days
    see Cost $4.91
    unfold Export
    see Export as CSV
support: what happened to this request
    menu Calls
    fill Search = {REQUEST}
    press Apply
    open :
    see Timeline
    see {REQUEST}
licensing: usage by person, client, day and model
    menu Usage & money
    see Money by day
    open By person
    open By model
    download CSV
    choose Client = Acme
    press Apply
    download NDJSON
release: roll back
    menu Channels
    open beta
    act Roll back
    see 2.0.0
    fill Reason = It crashes.
    press Roll back to 2.0.0
    told beta offers 2.0.0 again
release: halt, explain, resume
    menu Channels
    open beta
    act Halt
    fill Reason = It crashes.
    press Halt
    told beta is halted
    open Explain what a shell gets
    choose System = darwin
    press Explain
    see halted
    menu Overview
    see is halted
    menu Channels
    open beta
    act Resume
    fill Reason = Mended.
    press Resume
    told beta offers 2.0.0
release: move a channel of an app
    menu Apps
    open notes
    act Move a channel
    choose Channel = beta
    choose Version = 1.0.0
    fill Reason = It crashes.
    press Show the effects
    press Move beta to 1.0.0
    told notes beta offers 1.0.0
release: pin a client to a version
    menu Apps
    open notes
    act Pin a client
    fill Client = Acme
    choose Version = 1.1.0
    fill Reason = Tries it.
    press Pin a client
    told pinned to notes 1.1.0
support: a failed job
    menu Overview
    see failed permanently
    menu Background jobs
    open Send an email
    act Retry failed jobs
    fill Reason = The mail server is back.
    press Retry failed jobs
    told 1 job queued again
auditor: the audit log by a reason, and its export
    menu Audit
    fill Search = Laptop lost.
    press Apply
    see ended all sessions of
    unfold Export
    see Export as CSV
release: telemetry volumes
    menu Telemetry
    see document.opened
    act Volumes
    see Volumes
licensing: switch a model off and on
    menu Models
    open spare
    act Switch off
    fill Reason = Too slow.
    press Switch off
    told spare
    act Switch on
    fill Reason = Well again.
    press Switch on
    told spare
support: whose device is that
    find mac
    see Not ended
    open person-0@acme.test
    see Devices
    see Signed in
licensing: which client needs a look, and what was agreed with it
    menu Clients
    choose Problems = open
    press Apply
    open Acme
    act Edit notes
    fill Contract = CRM-2041
    fill Account manager = pia@ops.test
    press Save notes
    told The notes of Acme have been saved
    find CRM-2041
    see of $
support: who has never signed in
    menu People
    choose Status = Never signed in
    press Apply
    see person-5@acme.test
auditor: signing keys
    menu Sessions & keys
    tab Signing keys
    see Signing keys
owner: give roles to a new colleague
    menu Operators
    act Add operator
    fill Email = nora@ops.test
    tick support
    fill Reason = Joins us.
    press Add operator
    see nora@ops.test
    see Set-up code
owner: change roles
    menu Operators
    open auditor@
    act Change roles
    tick support
    fill Reason = Helps out.
    press Change roles
    told now has the roles auditor, support
owner: own sessions
    own Your sign-in
    see This one
licensing: a provider off and on
    menu Providers
    open third
    act Switch off
    fill Reason = Unwell.
    press Switch off third
    told third
    act Switch on
    fill Reason = Well again.
    press Switch on
    told third
licensing: try a route that fails
    menu Providers
    tab Routes
    open spare at third
    act Try it
    press Try it
    failed the try failed after
licensing: prices of a route
    menu Providers
    tab Routes
    open spare at third
    act Set prices
    fill Input = 1
    fill Output = 2
    fill Reason = Agreed.
    press Set prices
    told The prices of spare at third are set
licensing: a spent budget, and all of them
    menu Overview
    see has spent its budget
    menu Limits & budgets
    see 142 %
    open Acme
    act Set budget
    fill Dollars per month = 100
    fill Reason = Agreed.
    press Set budget
    told The budget of Acme is
support: personal keys
    menu Sessions & keys
    tab Personal keys
    open Editor
    act Revoke key
    fill Reason = Leaked.
    press Revoke the key
    told revoked
support: nights, and alerts of caps
    menu Background jobs
    see Nightly jobs
    menu Limits & budgets
    tab Alerts
    see person-0@acme.test
owner: revoke everybody
    menu Sessions & keys
    act Revoke all sessions
    see Revoke all sessions?
    fill Reason = The keys leaked.
    press Revoke all sessions
    told Everybody has been signed out
"""

# Steps after which there is another page.
LEADING = {"menu", "own", "find", "tab", "open", "act", "press"}
# A job may take so many presses of keys, the letters of names and reasons apart.
PRESSES = 40
# After so many that could not be done the rest is not tried: each may wait for long.
MOST_UNDONE = 3


@pytest.fixture
def office(world: World, plan: Plan, pipeline: Pipeline, now: datetime) -> World:
    """An operator of each role, and what their jobs are about."""
    for role in Role.values:
        one = User.objects.create(email=f"{role}@ops.test", password=password_hash(), is_staff=True)
        one.put_roles({role})
    person, client = world.person, world.client
    call = UsageRecord.objects.filter(user=person, state="settled")[:1].get()
    UsageRecord.objects.filter(pk=call.pk).update(request_id=REQUEST)
    Refusal.objects.create(
        minute=now.replace(second=0, microsecond=0),
        user=person,
        client_id=client.pk,
        code="budget_exceeded",
        status=429,
        model="small",
        last_at=now,
        request_ids=[REFUSED],
    )
    Budget.objects.create(
        client=client,
        monthly=500_000,
        period=Period.of(now).month,
        spent=710_000,
        summed_at=now,
        warned_at=now,
        exceeded_at=now,
    )
    slow, failed = (
        UsageRecord.objects.get(user=each, state="settled") for each in world.people[1:3]
    )
    begun = now - timedelta(minutes=2)
    UsageRecord.objects.filter(pk=slow.pk).update(
        opened_at=begun, settled_at=begun + timedelta(seconds=75), cost=4_910_000
    )
    refused = FailedAttempt("third", "spare", What.REFUSED, 500, "Broken.", begun, now)
    UsageRecord.objects.filter(pk=failed.pk).update(
        end="provider_failed",
        error_code="provider_unavailable",
        failures=json.loads(Failures((refused,)).as_json() or ""),
    )
    count_days(now=now)
    count_hours(now=now)
    for version in ("2.0.0", "2.1.0"):
        pipeline.publish(pipeline.release(version, "beta"), "beta")
    app_versions(now)
    spare = LanguageModel.objects.create(name="spare", provider_name="spare")
    third = Provider.objects.create(name="third", base_url="http://127.0.0.1:9/v1")
    Route.objects.create(model=spare, provider=third, provider_name="spare", order=5)
    return world


class Worker:
    """Takes the steps of jobs on a page, as one operator after the other."""

    def __init__(self, browser: Browser, **how: Any) -> None:
        self._browser, self._how = browser, how
        self._pages: dict[str, Page] = {}
        self.faults: list[str] = []
        self.page: Any = None

    def enter(self, role: str) -> Page:
        """The page of the role's operator, signed in."""
        if role not in self._pages:
            page = self._browser.new_context(**self._how).new_page()
            note_complaints(page, self.faults)
            page.set_default_timeout(LONGEST)
            page.on("response", self._look_at)
            page.goto("/admin/")
            page.get_by_label("Email").fill(f"{role}@ops.test")
            page.get_by_label("Password").fill(PASSWORD)
            page.get_by_role("button", name="Continue").click()
            expect(page.get_by_role("heading", name="Needs attention")).to_be_visible()
            self._pages[role] = page
        self.page = self._pages[role]
        return self._pages[role]

    def take(self, step: str) -> None:
        verb, _, what = step.partition(" ")
        name, _, value = what.partition(" = ")
        given = [name, value] if value else [name]
        if verb in LEADING:
            with self.page.expect_navigation():
                getattr(self, f"_{verb}")(*given)
        else:
            getattr(self, f"_{verb}")(*given)
        if self.page.evaluate("document.documentElement.scrollWidth > innerWidth"):
            self.faults.append(f"{step}: {self.page.url} scrolls sideways")

    def _look_at(self, response: Response) -> None:
        if response.status >= 400:
            self.faults.append(f"{response.status} {response.url}")

    def _menu(self, name: str) -> None:
        if (button := self.page.get_by_role("button", name="Menu")).is_visible():
            button.click()
        self.page.locator("#menu").get_by_role("link", name=name).click()

    def _own(self, name: str) -> None:
        self.page.locator(".operator summary").click()
        self.page.get_by_role("link", name=name).click()

    def _find(self, text: str) -> None:
        self.page.locator("#search").fill(text)
        self.page.keyboard.press("Enter")

    def _tab(self, name: str) -> None:
        self.page.locator(".tabs").get_by_role("link", name=name).click()

    def _open(self, name: str) -> None:
        self.page.get_by_role("main").get_by_role("link", name=name).first.click()

    def _act(self, name: str) -> None:
        take_act(self.page, name)

    def _fill(self, label: str, text: str) -> None:
        self.page.get_by_role("main").get_by_label(label).first.fill(text)

    def _download(self, name: str) -> None:
        with self.page.expect_download() as download:
            self.page.get_by_role("main").get_by_role("link", name=name, exact=True).first.click()
        assert Path(download.value.path()).read_text()

    def _tick(self, label: str) -> None:
        self.page.get_by_role("main").get_by_label(label).first.check()

    def _choose(self, label: str, option: str) -> None:
        box = self.page.get_by_role("main").get_by_label(label).first
        named = box.locator("option").filter(has_text=option).first
        box.select_option(named.get_attribute("value"))

    def _press(self, name: str) -> None:
        self.page.get_by_role("main").get_by_role("button", name=name).last.click()

    def _unfold(self, name: str) -> None:
        self.page.get_by_role("main").locator("summary", has_text=name).click()

    def _told(self, text: str) -> None:
        expect(self.page.locator(".message.success")).to_contain_text(text)

    def _failed(self, text: str) -> None:
        expect(self.page.get_by_role("alert")).to_contain_text(text)

    def _see(self, text: str) -> None:
        expect(self.page.get_by_role("main")).to_contain_text(text)


@pytest.mark.parametrize("screen", SCREENS)
def test_every_job_is_done_by_clicking(base_url: str, office: World, screen: str) -> None:
    undone = {}
    with chromium() as browser:
        worker = Worker(browser, base_url=base_url, **DESK, **SCREENS[screen])
        for job in re.findall(r"^\w+: .+(?:\n    .+)+", JOBS, re.MULTILINE):
            name, *steps = job.splitlines()
            step, before = "enter", len(worker.faults)
            try:
                worker.enter(name.partition(":")[0])
                for step in steps:
                    worker.take(step.strip().format(person=str(office.person.pk)[:8]))
            except (AssertionError, Error) as error:
                undone[name] = f"{step.strip()} at {worker.page.url}: {error}"
            if found := worker.faults[before:]:
                undone[name] = f"{undone.get(name, '')} {found}"
            if len(undone) == MOST_UNDONE:
                break
    assert undone == {}


class Keys:
    """A keyboard, and how often its keys were pressed, the letters of names and reasons apart."""

    def __init__(self, page: Page) -> None:
        self._page, self.presses = page, 0

    def press(self, key: str, *, leads: bool = False) -> None:
        self.presses += 1
        assert self.presses <= PRESSES
        with self._page.expect_navigation() if leads else nullcontext():
            self._page.keyboard.press(key)

    def find(self, text: str) -> None:
        self.press("/")
        self._page.keyboard.type(text)
        self.press("Enter", leads=True)

    def skip(self) -> None:
        """To what the page is about, past its frame."""
        self.press("Tab")
        self.press("Enter")

    def reach(self, name: str, *, by: str = "Tab") -> None:
        while name not in self._page.evaluate(FOCUSED):
            self.press(by)

    def open(self, name: str) -> None:
        self.reach(name)
        self.press("Enter", leads=True)

    def act(self, name: str) -> None:
        self.reach("More")
        self.press("Enter")
        self.open(name)

    def reason(self, text: str, button: str) -> None:
        """Gives the reason on an action's page, and does it."""
        self.reach("reason")
        self._page.keyboard.type(text)
        self.open(button)


# The focused element: its words, or the name and value of a field.
FOCUSED = """() => {
    const it = document.activeElement;
    return it.tabIndex < 0 ? "" : it.name ? `${it.name} ${it.value}` : it.textContent;
}"""


def test_five_jobs_are_done_by_keyboard_alone(base_url: str, office: World) -> None:
    person = office.person.email
    with chromium() as browser:
        worker = Worker(browser, base_url=base_url, **DESK, **SCREENS["desk"])

        def begin(role: str) -> tuple[Page, Keys]:
            page = worker.enter(role)
            page.goto("/admin/")
            return page, Keys(page)

        page, keys = begin("support")
        keys.find(person)
        expect(page.locator("h1")).to_contain_text(person)

        page, keys = begin("support")
        keys.find(person)
        keys.skip()
        keys.act("Stop model calls")
        keys.skip()
        keys.reason("Loops.", "Stop model calls")
        expect(page.locator(".message.success")).to_contain_text("can no longer call models")

        page, keys = begin("support")
        keys.find(person)
        keys.skip()
        keys.open("Restart")
        keys.skip()
        keys.reason("Mended.", "Restart model calls")
        expect(page.locator(".message.success")).to_contain_text("can call models again")

        page, keys = begin("licensing")
        keys.find("Borealis <script>")
        keys.skip()
        keys.act("Suspend")
        keys.skip()
        keys.reason("Unpaid.", "Suspend Borealis <script>")
        expect(page.locator(".message.success")).to_contain_text("is suspended")

        page, keys = begin("support")
        keys.find(REFUSED)
        keys.skip()
        keys.open("Explain this person now")
        expect(page.get_by_role("main")).to_contain_text("Why can’t they call models?")
        assert worker.faults == []
