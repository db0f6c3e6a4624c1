"""Explains whether a person can call a model now: the rules that refuse calls, run dry in the order of admission.

Each rule is the function that a call meets. Nothing is counted, reserved, written or sent.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple, TypeVar

from django.conf import settings
from django.db.models import F

from accounts.models import Session, User
from accounts.sessions.authentication import checked_caller
from config.platform.edge.ratelimits import limits as ratelimits
from config.platform.problems.problem import Problem
from licensing.callers import Caller, load_caller, load_signed_out
from licensing.models import Licence, Standing
from licensing.permissions import check_licence
from llmproxy.calls.estimating import estimate_of
from llmproxy.catalogue.choosing import check_plan, choice_of, known_model, surfaces_of
from llmproxy.catalogue.readiness import ready_target, shown
from llmproxy.catalogue.spending import affordable, reached_limits
from llmproxy.keys.authentication import check_key
from llmproxy.keys.personal_keys import holder_of_row
from llmproxy.models import LanguageModel, PersonalKey
from llmproxy.requests.call_request import Surface
from llmproxy.requests.chat import parse
from usage.limits import PlanCaps
from usage.models import Budget, Stop
from usage.refusals import (
    Needs,
    Reading,
    check_budget,
    check_day,
    check_month,
    check_reserved,
    check_stop,
)

R = TypeVar("R")
# Permissions for everything that an explanation contains.
EXPLAINING = ("licensing.view_licence", "usage.view_monthlyusage", "usage.view_stop")
# The invented call; a larger one needs more.
SMALL = {"messages": [{"role": "user", "content": "Hello"}]}


class Check(NamedTuple):
    """One rule: what it read, and the problem that it raises."""

    rule: str
    read: Any
    problem: Problem | None

    @property
    def is_close(self) -> bool:
        """Returns whether 80 % of a cap are used, or a route cools down beside others."""
        if self.rule in {"caps", "day"}:
            return any(share.cap and share.used >= 0.8 * share.cap for share in self.read)
        return self.rule == "provider" and any(cooling for _, cooling in self.read)


class Explanation:
    """The rules that a small call to a model meets, in their order."""

    def __init__(self, model: str) -> None:
        self.model = model
        self.checks: list[Check] = []

    @property
    def failing(self) -> Check | None:
        """The rule that answers a call now."""
        return next((each for each in self.checks if each.problem), None)

    @property
    def shown(self) -> list[Check]:
        """Without the routes where they are well, of which the provider says more, and spending limits."""
        quiet = {"route", "spending"}
        return [each for each in self.checks if each.problem or each.rule not in quiet]

    def run(self, rule: str, read: Any, check: Callable[[], R]) -> R | None:
        """Runs a rule; what it returns stands for what it read, where that is not given."""
        try:
            result, problem = check(), None
        except Problem as raised:
            result, problem = None, raised
        self.checks.append(Check(rule, result if read is None else read, problem))
        return result


def explain(
    *, user: User, now: datetime, model: str = "", key: PersonalKey | None = None
) -> Explanation:
    """Tries a small call of a person, by one of their keys or else by their latest session."""
    found = Explanation(model or settings.LLM_DEFAULT_MODEL)
    caller = holder_of_row(key) if key else _signed_in(user)
    _run_access(found, user, caller, now=now)
    if caller.client_id is None or caller.plan_id is None:
        return found
    licence = Licence.objects.get(client=caller.client_id)
    found.run("licence", licence, partial(check_licence, caller))
    person = str(user.pk)
    found.run("rate", None, lambda: ratelimits.peek("llm.user", key=person, now=now))
    needs = Needs(user_id=user.pk, client_id=caller.client_id, prompt=1)
    if key is not None:
        needs = needs._replace(key_id=key.pk, key_cap=key.monthly_output_tokens)
    needs = _run_model(found, caller, needs, now=now)
    reading = Reading.of(needs, plan=PlanCaps.of(caller), now=now)
    stop = Stop.objects.in_force(at=now).filter(user=user).first()
    found.run("stop", stop or "", partial(check_stop, reading))
    budget = Budget.objects.filter(client=caller.client_id).first()
    found.run("budget", budget or "", partial(check_budget, reading))
    found.run("caps", reading.shares[:-1], partial(check_month, reading))
    found.run("day", reading.shares[-1:], partial(check_day, reading))
    held = reading.balance.input_reserved + reading.balance.output_reserved
    found.run("running", held, partial(check_reserved, reading))
    return found


def _signed_in(user: User) -> Caller:
    """The person with their latest session, if they have one."""
    unended_first = F("ended_at").desc(nulls_first=True), "-last_used_at"
    sessions = Session.objects.filter(user=user).order_by(*unended_first)
    latest = sessions.values_list("pk", flat=True).first()
    found = load_caller(user_id=user.pk, session_id=latest) if latest else None
    return found or load_signed_out(user_id=user.pk)


def _run_access(found: Explanation, user: User, caller: Caller, *, now: datetime) -> None:
    """Runs the rule of access for account, session or key, and client, each as if all else were well."""
    well = replace(
        caller,
        is_active=True,
        session_lasts=True,
        status=caller.status or Standing.ACTIVE,
        key=None,
    )

    def run(rule: str, read: Any, **as_it_is: Any) -> None:
        seen = replace(well, **as_it_is)
        found.run(rule, read, lambda: checked_caller(seen, user_id=user.pk, epoch=seen.epoch))

    run("account", user, is_active=caller.is_active)
    if caller.key is None:
        live = Session.objects.filter(user=user).live(at=now).order_by("-last_used_at")
        run("session", list(live), session_lasts=caller.session_lasts)
    run("client", caller.client_name or "", status=caller.status)
    keys = list(PersonalKey.objects.filter(user=user).live(at=now).order_by("expires_at"))
    found.run("key", keys, partial(check_key, caller, caller.key) if caller.key else bool)


def _run_model(found: Explanation, caller: Caller, needs: Needs, *, now: datetime) -> Needs:
    """Runs the rules of model, plan and provider; returns what the call needs."""
    row = LanguageModel.objects.filter(name=found.model).first()
    known = found.run("model", row or "", partial(known_model, found.model, caller=caller))
    if known is None:
        return needs
    model, routes = known
    found.run("plan", caller.plan, partial(check_plan, model, caller))
    surfaces = {each for route in routes for each in surfaces_of(route)}
    surface = Surface.CHAT if Surface.CHAT in surfaces else min(surfaces, default=Surface.CHAT)
    choice = found.run("route", routes, partial(choice_of, model, routes, surface=surface))
    if choice is None:
        return needs
    targets = choice.targets
    concerned = {"", *(each.provider for each in targets)}
    reached = [each for each in reached_limits(caller) if each.provider in concerned]
    limits = [(each, until) for each in reached if (until := each.stopped_until(now))]
    left = found.run("spending", limits, partial(affordable, targets, caller=caller, now=now))
    targets = left or targets
    cools = [(each.provider, shown(each.route, now=now)) for each in targets]
    ready = partial(ready_target, targets, is_only=len(targets) == 1, now=now, is_dry=True)
    found.run("provider", cools, ready)
    request = parse(SMALL, stream=False)
    prompt = estimate_of(request, targets, model=choice, of=caller.user_id).tokens
    has_output = surface is not Surface.EMBEDDINGS
    return needs._replace(prompt=prompt, output=needs.output if has_output else 0)
