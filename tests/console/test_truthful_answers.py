"""Answers of the console after an action: what is so now, what follows, the event that says so, and the way back."""

import re
from datetime import datetime
from functools import partial

import pytest
from django.test import Client
from django.urls import reverse

from accounts.models import AuditEvent, Role, User
from licensing.models import Plan
from llmproxy.models import LanguageModel, Provider, Route
from releases.models import MicroApp
from tests.conftest import Browser
from tests.console.conftest import World
from tests.console.test_roles import operator_with

pytestmark = pytest.mark.django_db


def test_a_refusal_before_anybody_is_known_is_a_page_too(client: Client, console: Browser) -> None:
    for get in (partial(client.get, secure=True), console.get):
        for page in ("/admin/?q=%00", "/admin/search/?q=%00"):
            answer = get(page)
            assert answer.status_code == 400
            assert "An address cannot contain a NUL character." in answer.content.decode()


def said(page: str) -> str:
    """The messages of a page, with one space between words."""
    found = re.findall(r'<div class="message .*?</div>', page, re.DOTALL)
    return re.sub(r"\s+", " ", " ".join(found))


def test_a_failed_try_is_a_failure_and_its_page_stays(console: Browser, world: World) -> None:
    provider = Provider.objects.create(name="third", base_url="http://127.0.0.1:9")
    model = LanguageModel.objects.get(name="small")
    route = Route.objects.create(model=model, provider=provider, provider_name="small", order=5)
    page = reverse("admin:llmproxy_route_try", args=[route.pk])
    answer = console.post(page, {"once": "1"})
    assert answer.status_code == 200
    message = said(answer.content.decode())
    assert 'class="message error" role="alert"' in message
    assert f"{route}: the try failed after" in message
    assert "Nothing was changed." in message
    assert "Audit entry" in message
    assert "success" not in message
    assert ">Try it</button>" in answer.content.decode()
    # It may be sent again as it is: a failure is not kept as done.
    assert console.post(page, {"once": "1"}).status_code == 200


def test_an_answer_links_its_event_for_those_who_may_read_it(
    console: Browser, operator: User, world: World
) -> None:
    page = reverse("admin:accounts_client_name", args=[world.client.pk])
    message = said(console.post(page, {"name": "<b>Acme"}, follow=True).content.decode())
    newest = AuditEvent.objects.order_by("-pk").values_list("pk", flat=True)[0]
    assert reverse("admin:accounts_auditevent_change", args=[newest]) in message
    assert "&lt;b&gt;Acme" in message
    # Beside the sentence, which may have a link of its own.
    assert re.search(
        r'</strong> <span class="links"><a href="[^"]+">Audit entry</a></span>', message
    )
    assert "<b>" not in message
    operator.put_roles({Role.RELEASE})
    retry = reverse("admin:procrastinate_procrastinatejob_retry", args=[world.job_id])
    message = said(console.post(retry, {"reason": "Again."}, follow=True).content.decode())
    assert "1 job queued again." in message
    assert "Audit entry" not in message


def test_an_answer_offers_the_way_back_to_those_who_may_go_it(
    console: Browser, world: World
) -> None:
    page = reverse("admin:accounts_user_disable", args=[world.person.pk])
    done = console.post(page, {"reason": "Left."}, follow=True).content.decode()
    back = reverse("admin:accounts_user_enable", args=[world.person.pk])
    assert f'href="{back}"' in said(done)
    assert "<strong>" in said(done)


def test_suspending_says_whom_it_affects_and_then_what_it_has_done(
    console: Browser, world: World
) -> None:
    licence = world.client.licence
    page = reverse("admin:licensing_licence_status", args=[licence.pk])
    shown = re.sub(r"<[^>]+>|\s+", " ", console.get(page).content.decode())
    shown = re.sub(r" +", " ", shown)
    for line in (
        "People 8 3 active in the last hour", "Running calls 8 are ended and charged so far",
        "Personal keys 1 refused, not deleted", "Sessions 3 stay signed in",
    ):  # fmt: skip
        assert line in shown
    given = {"status": "suspended", "reason": "Unpaid."}
    message = said(console.post(page, given, follow=True).content.decode())
    assert "<strong>Acme is suspended.</strong>" in message
    assert "8 people cannot call models until you resume the client." in message
    assert "8 running calls end within 15 seconds." in message
    assert f'href="{page}"' in message
    message = said(console.post(page, {**given, "status": "active"}, follow=True).content.decode())
    assert "<strong>Acme is active.</strong>" in message
    assert "cannot call" not in message


def test_a_changed_licence_says_what_changed_and_asks_about_apps_that_do_not_exist(
    console: Browser, world: World, now: datetime
) -> None:
    MicroApp.objects.create(slug="notes", created_at=now)
    licence = world.client.licence
    other = Plan.objects.create(name="Team")
    page = reverse("admin:licensing_licence_terms", args=[licence.pk])
    given = {"plan": other.pk, "entitlements": "notes,nosuchapp", "reason": "Asked for."}
    asked = console.post(page, given)
    assert asked.status_code == 200
    assert "No app is called nosuchapp." in asked.content.decode()
    assert 'name="unknown" value="nosuchapp"' in asked.content.decode()
    licence.refresh_from_db()
    assert licence.entitlements == []
    # Another slip is asked about as well.
    again = console.post(page, {**given, "entitlements": "notees", "unknown": "nosuchapp"})
    assert "No app is called notees." in again.content.decode()
    done = console.post(page, {**given, "unknown": "nosuchapp"}, follow=True)
    message = said(done.content.decode())
    assert f"Plan: {licence.plan} → Team." in message
    assert "Beyond the plan: nothing → nosuchapp, notes." in message
    plain = {**given, "entitlements": "notes"}
    assert "nosuchapp, notes → notes." in said(
        console.post(page, plain, follow=True).content.decode()
    )


def test_a_changed_plan_says_what_changed(console: Browser, plan: Plan) -> None:
    page = reverse("admin:licensing_plan_terms", args=[plan.pk])
    form = console.get(page).context["form"]
    given = {
        name: value for name in form.fields if (value := form[name].value()) not in (None, False)
    }
    given |= {"entitlements": "", "daily_tokens": "7000", "reason": "Smaller days."}
    message = said(console.post(page, given, follow=True).content.decode())
    assert "→ 7,000" in message
    assert "aily tokens" in message
    assert "monthly" not in message.lower()


def test_a_model_is_switched_off_with_its_impact_and_a_reason(
    console: Browser, world: World
) -> None:
    model = LanguageModel.objects.get(name="small")
    page = reverse("admin:llmproxy_languagemodel_off", args=[model.pk])
    shown = console.get(page).content.decode()
    assert "In the last 24 hours 8 people made 16 calls to it." in shown
    assert "Running calls continue: 8." in shown
    assert console.post(page, {"reason": ""}).status_code == 200
    message = said(console.post(page, {"reason": "Dear."}, follow=True).content.decode())
    assert "small is off." in message
    model.refresh_from_db()
    assert model.is_on is False
    event = AuditEvent.objects.get(action="language_model:changed")
    assert (event.reason, event.before, event.after) == ("Dear.", {"on": True}, {"on": False})
    back = reverse("admin:llmproxy_languagemodel_on", args=[model.pk])
    assert f'href="{back}"' in message
    console.post(back, {"reason": "Cheap again."})
    model.refresh_from_db()
    assert model.is_on is True
    change = reverse("admin:llmproxy_languagemodel_offer", args=[model.pk])
    assert "is_on" not in console.get(change).context["form"].fields


def test_the_form_of_an_override_shows_the_present_caps_and_use(
    console: Browser, world: World
) -> None:
    page = reverse("admin:usage_override_add")
    shown = console.get(f"{page}?user={world.person.pk}").content.decode()
    assert "Used now, and the caps that apply: input 450,000 of 900,000;" in shown
    assert "Used now" not in console.get(page).content.decode()


def test_telemetry_names_clients_and_people_to_those_who_may_look_them_up(
    console: Browser, world: World
) -> None:
    shown = console.get(reverse("admin:telemetry_event_changelist")).content.decode()
    for name, page in (
        ("Acme", reverse("admin:accounts_client_change", args=[world.client.pk])),
        (world.person.email, reverse("admin:accounts_user_change", args=[world.person.pk])),
    ):
        assert f'<a href="{page}">{name}</a>' in shown
    release = Browser()
    release.force_login(operator_with("release"))
    shown = release.get(reverse("admin:telemetry_event_changelist")).content.decode()
    assert str(world.person.pk) in shown
    assert world.person.email not in shown
    assert "Acme" not in shown
    exported = console.get(reverse("admin:telemetry_event_export_csv"))
    assert str(world.person.pk).encode() in b"".join(exported.streaming_content)  # type: ignore[attr-defined]
