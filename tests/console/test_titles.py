"""The titles of the acts' pages: each asks about its row as a person would."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.contrib import admin
from django.urls import reverse

from accounts.audit import Actor
from accounts.models import Client, Connection, Session, User
from config.console.actions import Action
from licensing.models import HeldSuspension
from llmproxy.models import LanguageModel, PersonalKey, Provider
from tests.conftest import Browser
from tests.console.conftest import World
from usage.models import Override, UsageRecord

pytestmark = pytest.mark.django_db


def title(name: str, row: Any) -> str:
    console: Any = admin.site.get_model_admin(type(row))
    action: Action = console.action(name)
    return action.title(row, console.row_name(row))


def acts_on_rows() -> Iterator[Action]:
    for console in admin.site._registry.values():
        yield from console.row_actions


def test_every_act_on_a_row_asks_a_question_of_its_own() -> None:
    without = {
        type(act).__name__
        for act in acts_on_rows()
        if type(act).title is Action.title and not act.question.endswith("?")
    }
    assert without == set()


def test_a_title_is_a_question_that_names_its_row(world: World, by: Actor, now: datetime) -> None:
    person = User(email="ines@acme.test")
    later = now + timedelta(days=1)
    shell = Session(user=person, agent="Shell/4.8.1 (Macintosh; Intel Mac OS X 10_15_7)")
    held = HeldSuspension(job="sync_subscriptions", licence_ids=[1, 2], clients=3)
    call = UsageRecord(user=person, model="small", opened_at=now)
    asked = {
        title("off", LanguageModel(name="small")): "Switch off small?",
        title("off", Provider(name="second")): "Switch off second?",
        title("end", Override(user=person, ends_at=later)): "End the override of ines@acme.test?",
        title("end", Override(user=person, ends_at=later, is_extra=True)): (
            "End the extra allowance of ines@acme.test?"
        ),
        title("end", shell): "Sign ines@acme.test out of Shell 4.8.1 on a Mac?",
        title("end", Session(user=person)): "Sign ines@acme.test out of an unknown device?",
        title(
            "end", PersonalKey(user=person, name="Editor")
        ): "Revoke the key Editor of ines@acme.test?",
        title("lower", call): "Lower the charge of this call?",
        title("disconnect", Connection(user=person, provider="google")): (
            "Disconnect ines@acme.test from google?"
        ),
        title("confirm", held): "Let sync_subscriptions suspend 2 of 3 clients?",
        title("stop_calls", person): "Stop model calls for ines@acme.test?",
        title("roles", person): "Change the roles of ines@acme.test?",
        title("invite", Client(name="Acme")): "Invite people to Acme?",
        title("budget", Client(name="{name}")): "Set the monthly budget of {name}?",
    }
    assert list(asked) == list(asked.values())


def test_a_page_and_its_red_button_say_the_same(console: Browser, world: World) -> None:
    session = Session.objects.filter(ended_at=None)[:1].get()
    address = reverse("admin:accounts_session_end", args=[session.pk])
    text = " ".join(console.get(address).content.decode().split())
    asked = f"Sign {session.user} out of {session.device}"
    assert f"<h1>{asked}?</h1>" in text
    assert f'class="grave">{asked}</button>' in text
