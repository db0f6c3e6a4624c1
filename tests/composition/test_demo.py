"""The demo, and mail that is queued with what it tells of."""

import json
from base64 import b64decode
from datetime import datetime
from pathlib import Path
from uuid import uuid4

import pytest
from django.core import mail
from django.core.management import call_command
from django.db import transaction
from procrastinate.contrib.django.models import ProcrastinateJob
from pytest_django.fixtures import Settings

from accounts.models import AuditEvent, Client, SigningKey, User
from accounts.sessions.sign_in import Device, sign_in
from config.composition.operation.demo import APP
from config.platform.jobs.mail import queue_for_operators, send_mail
from licensing.models import Licence, Plan
from llmproxy.models import Route
from releases.models import AppChannel, AppVersion
from tests.tools import demo_app
from tests.tools.minisign import key_pair
from usage.limits import PlanCaps, balance

pytestmark = pytest.mark.django_db


def test_the_demo_can_sign_in_and_a_second_run_keeps_it(tmp_path: Path, now: datetime) -> None:
    path = tmp_path / "demo.json"
    call_command("seed_demo", output=path)
    demo = json.loads(path.read_text())
    assert set(demo) == {
        "base_url", "email", "password", "operator_email", "operator_password", "publish_secret",
    }  # fmt: skip
    assert path.stat().st_mode & 0o777 == 0o600
    assert sign_in(email=demo["email"], password=demo["password"], device=Device(), now=now).access
    assert User.objects.get(email=demo["operator_email"]).is_superuser
    assert Licence.objects.get().plan.allows_keys
    coding = Plan.objects.get(name="Coding")
    assert (coding.allows_keys, coding.cached_input_percent) == (True, 10)
    assert balance(user_id=uuid4(), plan=PlanCaps.of(coding), now=now).day_cap is None

    # As the demo of an earlier release.
    coding.delete()
    assert Route.objects.all().delete()[0] == 3
    call_command("seed_demo", output=path)
    assert json.loads(path.read_text()) == demo
    assert Route.objects.count() == 3
    assert (Client.objects.count(), Licence.objects.count()) == (1, 1)
    assert Plan.objects.filter(name="Coding").count() == 1
    assert (User.objects.count(), SigningKey.objects.count()) == (2, 1)


def test_the_second_provider_is_a_second_route_wherever_it_stands(tmp_path: Path) -> None:
    for address in ("http://127.0.0.1:9", "http://127.0.0.1:9", "http://127.0.0.1:10"):
        call_command("seed_demo", output=tmp_path / "demo.json", second_provider=address)
        routes = Route.objects.filter(provider__name="second", provider__base_url=address)
        assert sorted(routes.values_list("model__name", "order")) == [
            ("stand-in-large", 1),
            ("stand-in-small", 1),
        ]


def test_an_app_that_is_published_is_offered_and_left_as_operators_move_it(
    tmp_path: Path, settings: Settings, now: datetime
) -> None:
    settings.APPS_PUBLIC_KEY = b64decode(key_pair(tmp_path, "apps"))
    files = {
        "BACKEND": "releases.delivery.storage.Files",
        "OPTIONS": {"location": str(tmp_path / "s")},
    }
    settings.STORAGES = {**settings.STORAGES, "default": files}
    for _ in range(2):
        # The same bytes each time, or the second would be refused.
        call_command("publish_app", *demo_app.arguments(tmp_path))
        call_command("seed_demo", output=tmp_path / "demo.json")
    assert AppVersion.objects.count() == 1
    stable = AppChannel.objects.get(app=APP, name="stable")
    assert stable.version.version == demo_app.VERSION
    assert AuditEvent.objects.filter(action="app:channel_moved", target=str(stable)).count() == 1


def test_a_lost_file_gets_new_passwords_that_are_good(tmp_path: Path, now: datetime) -> None:
    path = tmp_path / "demo.json"
    call_command("seed_demo", output=path)
    path.write_text("{")
    call_command("seed_demo", output=path)
    demo = json.loads(path.read_text())
    assert sign_in(email=demo["email"], password=demo["password"], device=Device(), now=now).access


def test_mail_is_queued_with_its_transaction_or_not_at_all(settings) -> None:
    with transaction.atomic():
        queue_for_operators(subject="Kept", text="Something happened.", path="/admin/")
    with transaction.atomic():
        queue_for_operators(subject="Lost", text="Nothing happened.", path="/admin/")
        transaction.set_rollback(True)
    job = ProcrastinateJob.objects.get()
    assert (job.task_name, job.args["subject"]) == ("mail.send", "Kept")
    assert f"\n{settings.BASE_URL}/admin/\n" in job.args["text"]


def test_the_worker_sends_it() -> None:
    send_mail(to=["ops@shell.test"], subject="Hello", text="plain", html="<p>rich</p>")
    (sent,) = mail.outbox
    assert (sent.to, sent.subject, sent.body) == (["ops@shell.test"], "Hello", "plain")
    assert sent.alternatives[0].content == "<p>rich</p>"
