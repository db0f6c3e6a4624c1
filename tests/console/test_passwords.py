"""Help for somebody who cannot sign in."""

import re
from typing import Any

import pytest
from django.urls import reverse
from procrastinate.contrib.django.models import ProcrastinateJob

from accounts.models import AuditEvent, Session, User
from accounts.sessions.sign_in import TokenPair
from tests.conftest import PASSWORD, Browser

pytestmark = pytest.mark.django_db

ONE_TIME = re.compile(r"<code>((?:[0-9A-Z]{4}-){5}[0-9A-Z]{3})</code>")


def page(user: User, act: str) -> str:
    return reverse(f"admin:accounts_user_{act}", args=[user.pk])


def test_a_reset_link_is_sent_with_a_button(
    console: Browser, operator: User, user: User, pair: TokenPair
) -> None:
    person = console.get(reverse("admin:accounts_user_change", args=[user.pk])).content.decode()
    assert page(user, "reset") in person
    assert "30 minutes" in console.get(page(user, "reset")).content.decode()
    assert not ProcrastinateJob.objects.filter(task_name="accounts.send_password_link").exists()
    done = console.post(page(user, "reset"), follow=True)
    assert "is on its way" in " ".join(str(each) for each in done.context["messages"])
    (job,) = ProcrastinateJob.objects.filter(task_name="accounts.send_password_link")
    assert job.args == {"user_id": str(user.pk), "kind": "reset"}
    event = AuditEvent.objects.get(action="user:password_link_requested")
    assert (event.actor_id, event.target, event.after) == (
        operator.pk,
        user.email,
        {"kind": "reset"},
    )
    # Nothing has changed for them yet.
    assert Session.objects.get().ended_at is None
    user.refresh_from_db()
    assert user.check_password(PASSWORD)


def test_a_one_time_password_is_shown_once_and_kept_nowhere(
    console: Browser, operator: User, user: User, pair: TokenPair, settings: Any
) -> None:
    settings.BASE_URL = "https://shell.test"
    asked = console.get(page(user, "one_time"))
    assert "stops working" in asked.content.decode()
    assert Session.objects.get().ended_at is None
    answer = console.post(page(user, "one_time"), {"reason": "Mail is down."})
    assert answer.status_code == 200
    text = answer.content.decode()
    (one_time,) = ONE_TIME.findall(text)
    assert "https://shell.test/account/password</code>" in text
    assert "Signed out everywhere (1 device)." in text
    assert "no-store" in answer["Cache-Control"]
    assert not answer.cookies.get("messages")
    for after in (
        console.get(page(user, "one_time")),
        console.get(reverse("admin:accounts_user_change", args=[user.pk])),
        console.get("/admin/"),
    ):
        assert one_time not in after.content.decode()
    event = AuditEvent.objects.get(action="user:one_time_password_set")
    assert (event.actor_id, event.reason, event.address) == (
        operator.pk,
        "Mail is down.",
        Browser.address,
    )
    assert one_time not in str(list(AuditEvent.objects.values()))
    assert console.session.get("_messages") is None


def test_nothing_is_set_without_a_reason(console: Browser, user: User) -> None:
    refused = console.post(page(user, "one_time"), {"reason": " "})
    assert "This field is required." in refused.content.decode()
    user.refresh_from_db()
    assert user.check_password(PASSWORD)


@pytest.mark.parametrize("act", ["reset", "one_time"])
def test_password_acts_are_refused_for_a_disabled_person(
    console: Browser, user: User, act: str
) -> None:
    User.objects.filter(pk=user.pk).update(is_active=False)
    assert console.post(page(user, act), {"reason": "x"}).status_code == 302
    assert not AuditEvent.objects.filter(action__startswith="user:").exists()
    user.refresh_from_db()
    assert user.check_password(PASSWORD)


def test_nobody_takes_his_own_password_away(console: Browser, operator: User) -> None:
    assert console.post(page(operator, "one_time"), {"reason": "x"}).status_code == 302
    operator.refresh_from_db()
    assert operator.check_password(PASSWORD)
