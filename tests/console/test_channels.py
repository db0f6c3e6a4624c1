"""The shell's channels as operators see them: what is live, what the CDN serves, and what they can do about it."""

from collections.abc import Iterator
from datetime import datetime, timedelta

import pytest
from django.urls import reverse
from pytest_django.fixtures import Settings

from accounts.models import AuditEvent, User
from config.console.attention.listing import items
from releases.delivery.storage import IMMUTABLE_CACHE
from releases.models import Publication, Purge, ShellChannel
from tests.conftest import Browser
from tests.releases import conftest as releasing
from tests.releases.conftest import Pipeline
from tests.standins.cdn import Cdn, running_cdn

pytestmark = pytest.mark.django_db

PAGE = reverse("admin:releases_shellchannel_change", args=["stable"])
pipeline = releasing.pipeline


@pytest.fixture
def cdn() -> Iterator[Cdn]:
    with running_cdn() as cdn:
        yield cdn


@pytest.fixture
def published(pipeline: Pipeline) -> Pipeline:
    for version in ("1.0.0", "2.0.0"):
        pipeline.publish(pipeline.release(version))
    return pipeline


def act(name: str) -> str:
    return reverse(f"admin:releases_shellchannel_{name}", args=["stable"])


def text(console: Browser, address: str) -> str:
    return " ".join(console.get(address).content.decode().split())


def test_a_channel_says_what_is_live_and_since_when(console: Browser, published: Pipeline) -> None:
    shown = text(console, PAGE)
    assert "2.0.0</a>, published" in shown
    assert "release pipeline (secret 1)" in shown
    assert "No CDN is purged" in shown
    assert "2.0.0" in text(console, reverse("admin:releases_shellchannel_changelist"))


def test_a_failed_purge_is_red_here_and_on_the_front_page(
    console: Browser, operator: User, published: Pipeline, settings: Settings, now: datetime
) -> None:
    def troubles() -> str:
        return " ".join(str(each) for each in items(operator=operator, now=now))

    settings.CDN_PURGE = "purge"
    live = Publication.objects.of("stable")[0]
    purge = Purge.objects.create(
        channel_id="stable",
        publication=live,
        asked_at=now,
        due_at=now,
        tried_at=now,
        attempts=3,
        failure="old_bytes",
    )
    shown = text(console, PAGE)
    assert '<p class="wrong"> The CDN does not serve it yet' in shown
    assert "Tried 3 times" in shown
    listed = reverse("admin:releases_shellchannel_changelist")
    assert '<strong class="wrong">purge failed: old_bytes</strong>' in text(console, listed)
    assert act("purge") in shown
    assert "The CDN does not serve what stable offers (old_bytes)." in troubles()
    console.post(act("purge"), {"reason": "The CDN is well again."})
    assert AuditEvent.objects.filter(action="release:purge_retried").count() == 1
    purge.confirmed_at = now
    purge.save()
    assert "read back" in text(console, PAGE)
    assert "purge failed" not in text(console, listed)
    assert "does not serve" not in troubles()


def test_a_purge_that_is_under_way_is_no_failure_until_it_takes_too_long(
    console: Browser, published: Pipeline, settings: Settings, now: datetime
) -> None:
    settings.CDN_PURGE = "cloudfront:E1"
    listed = reverse("admin:releases_shellchannel_changelist")
    purge = Purge.objects.create(
        channel_id="stable",
        publication=Publication.objects.of("stable")[0],
        asked_at=now,
        due_at=now,
        tried_at=now + timedelta(minutes=2),
        attempts=3,
        failure=Purge.UNDER_WAY,
    )
    assert "purge failed" not in text(console, listed)
    purge.tried_at = now + Purge.MAY_TAKE
    purge.save()
    assert "purge failed: under_way" in text(console, listed)


def test_rolling_back_says_first_what_it_does(console: Browser, published: Pipeline) -> None:
    page = console.get(act("roll_back"))
    assert "stay on the newer version" in page.content.decode()
    [(chosen, label)] = page.context["form"].fields["to"].choices
    assert label.startswith("1.0.0 ")
    preview = console.post(act("roll_back"), {"to": chosen, "reason": "It crashes."})
    shown = " ".join(preview.content.decode().split())
    assert "stable offers 1.0.0 instead of 2.0.0." in shown
    assert "Shells that have 2.0.0 keep it" in shown
    assert Publication.objects.of("stable")[0].release.version == "2.0.0"
    done = console.post(
        act("roll_back"), {"to": chosen, "seen": chosen, "reason": "It crashes."}, follow=True
    )
    assert "table offers 1.0.0 again." in done.content.decode()
    assert Publication.objects.of("stable")[0].release.version == "1.0.0"


def test_a_halted_channel_says_so_and_is_resumed(console: Browser, published: Pipeline) -> None:
    assert "stay on their version" in text(console, act("halt"))
    console.post(act("halt"), {"reason": "It crashes."})
    shown = text(console, PAGE)
    assert "Halted since" in shown
    assert "Resumed, it would offer" in shown
    assert act("halt") not in shown
    assert "nothing" in text(console, reverse("admin:releases_shellchannel_changelist"))
    assert "offers version 2.0.0 again" in text(console, act("resume"))
    console.post(act("resume"), {"reason": "It was the network."})
    assert ShellChannel.objects.get().halted_at is None


def test_an_operator_is_told_why_a_shell_gets_what_it_gets(
    console: Browser, published: Pipeline
) -> None:
    address = act("explain")
    assert address in text(console, PAGE)
    before = AuditEvent.objects.count()
    assert "System" in text(console, address)
    shown = text(console, f"{address}?os=darwin&arch=aarch64&current_version=1.0.0")
    assert "It gets version 2.0.0 (200)" in shown
    assert "2.0.0 is newer than 1.0.0" in shown
    assert "It gets no update (204)" in text(console, f"{address}?os=darwin&current_version=3.0.0")
    assert "Select a valid choice" in text(console, f"{address}?os=beos")
    assert AuditEvent.objects.count() == before
    assert (
        console.get(reverse("admin:releases_shellchannel_explain", args=["x"])).status_code == 403
    )


def test_the_proof_of_each_artifact_is_shown(console: Browser, published: Pipeline) -> None:
    release = Publication.objects.of("stable")[0].release
    artifact = release.artifacts.all()[0]
    page = reverse("admin:releases_shellrelease_change", args=[release.pk])
    shown = text(console, page)
    assert artifact.sha256 in shown
    assert f"good, by the key <code>{published.signer.name}</code>" in shown
    assert "version:2.0.0" in shown
    assert "should be" not in shown
    artifact.cache_control = "max-age=60"
    artifact.save()
    shown = text(console, page)
    assert '<strong class="wrong">max-age=60</strong>' in shown
    assert f"should be {IMMUTABLE_CACHE}" in shown
