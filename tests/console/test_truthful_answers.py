"""Answers of the console after an action: what is so now, what follows, the event that says so, and the way back."""

import re

import pytest
from django.urls import reverse

from accounts.models import AuditEvent, Role, User
from llmproxy.models import LanguageModel, Provider, Route
from tests.conftest import Browser
from tests.console.conftest import World

pytestmark = pytest.mark.django_db


def said(page: str) -> str:
    """The messages of a page, with one space between words."""
    found = re.search(r'<ul class="messagelist">.*?</ul>', page, re.DOTALL)
    return re.sub(r"\s+", " ", found[0]) if found else ""


def test_a_failed_try_is_a_failure_and_its_page_stays(console: Browser, world: World) -> None:
    provider = Provider.objects.create(name="third", base_url="http://127.0.0.1:9")
    model = LanguageModel.objects.get(name="small")
    route = Route.objects.create(model=model, provider=provider, provider_name="small", order=5)
    page = reverse("admin:llmproxy_route_try", args=[route.pk])
    answer = console.post(page, {"once": "1"})
    assert answer.status_code == 200
    message = said(answer.content.decode())
    assert 'class="error"' in message
    assert f"{route}: the try failed after" in message
    assert "Nothing was changed." in message
    assert "Audit entry" in message
    assert "success" not in message
    assert 'value="Try it"' in answer.content.decode() or ">Try it<" in answer.content.decode()
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
    assert "<b>" not in message
    operator.put_roles({Role.RELEASE})
    retry = reverse("admin:procrastinate_procrastinatejob_retry", args=[world.job_id])
    message = said(console.post(retry, {"reason": "Again."}, follow=True).content.decode())
    assert "Jobs queued again: 1." in message
    assert "Audit entry" not in message


def test_an_answer_offers_the_way_back_to_those_who_may_go_it(
    console: Browser, world: World
) -> None:
    page = reverse("admin:accounts_user_disable", args=[world.person.pk])
    done = console.post(page, {"reason": "Left."}, follow=True).content.decode()
    back = reverse("admin:accounts_user_enable", args=[world.person.pk])
    assert f'href="{back}"' in said(done)
    assert "<strong>" in said(done)
