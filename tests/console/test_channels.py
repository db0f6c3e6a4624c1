"""The shell's channels as operators see them: what is live, what the CDN serves, and what they can do about it."""

import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.urls import reverse
from django.utils.html import strip_tags
from pytest_django.fixtures import Settings

from accounts.models import AuditEvent, Role, User
from config.composition.attention.listing import items
from config.platform.text.versions import Version
from releases.delivery.storage import IMMUTABLE_CACHE
from releases.models import Publication, Purge, ShellChannel
from releases.updates import place_of
from telemetry.models import DailyVolume
from tests.conftest import Browser
from tests.console.test_roles import operator_with
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
    assert "2.0.0 has been offered to every older shell since" in shown
    assert "release pipeline (secret 1)" in shown
    assert "not purged: serves an older manifest" in shown
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
    assert (
        "<span><b>The CDN does not serve it yet, or could not be notified (old_bytes).</b>" in shown
    )
    assert "Tried 3 times" in shown
    listed = reverse("admin:releases_shellchannel_changelist")
    assert '<span class="chip chip-refused">Purge failed: old_bytes</span>' in text(console, listed)
    assert act("purge") in shown
    assert "The CDN does not serve what stable offers (old_bytes)." in troubles()
    console.post(act("purge"), {"reason": "The CDN is well again."})
    assert AuditEvent.objects.filter(action="release:purge_retried").count() == 1
    purge.confirmed_at = now
    purge.save()
    assert "checked" in text(console, PAGE)
    assert "Purge failed" not in text(console, listed)
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
    assert "Purge failed" not in text(console, listed)
    purge.tried_at = now + Purge.MAY_TAKE
    purge.save()
    assert "Purge failed: under_way" in text(console, listed)


def test_rolling_back_shows_its_effect_first(
    console: Browser, published: Pipeline, now: datetime
) -> None:
    published.publish(published.release("3.0.0"))
    day = now.date()
    for version, events in (("1.0.0", 392), ("2.0.0", 3209), ("3.0.0", 311), ("", 50), ("*", 9)):
        DailyVolume.objects.create(day=day, shell_version=version, events=events)
    page = console.get(act("roll_back"))
    [(second, label), (first, _)] = page.context["form"].fields["to"].choices
    assert label.startswith("2.0.0, published ")
    shown = " ".join(page.content.decode().split())
    assert "stable offers 2.0.0 instead of 3.0.0" in shown
    assert "Shells that have a newer version keep it" in shown
    for cells in (
        ("1.0.0", "392", "10 %", "updates to 2.0.0"),
        ("2.0.0", "3,209", "82 %", "nothing changes"),
        ("3.0.0", "311", "8 %", "keeps it"),
    ):
        assert re.search(".*?".join(map(re.escape, cells)), re.sub("</?b>", "", shown)), cells
    assert "Choose another version to see its effects." in shown
    # They are shown first.
    entered = {"to": first, "seen": second, "reason": "It crashes."}
    preview = console.post(act("roll_back"), entered)
    assert "stable offers 1.0.0 instead of 3.0.0" in " ".join(preview.content.decode().split())
    assert Publication.objects.of("stable")[0].release.version == "3.0.0"
    assert preview.context["form"].initial == {**entered, "to": str(first), "seen": str(first)}
    done = console.post(act("roll_back"), {**entered, "seen": first}, follow=True)
    assert "stable offers 1.0.0 again." in done.content.decode()
    assert Publication.objects.of("stable")[0].release.version == "1.0.0"


def test_the_versions_of_a_channels_page_are_named_as_events_and_add_up(
    console: Browser, published: Pipeline, now: datetime
) -> None:
    assert "Versions are counted every night. Check again tomorrow." in text(console, PAGE)
    for minor in range(11):
        DailyVolume.objects.create(day=now.date(), shell_version=f"1.{minor}.0", events=30 - minor)
    shown = strip_tags(text(console, PAGE))
    assert "Events by shell version" in shown
    assert "Shells by version" not in shown
    assert re.search(r"3 other versions +63 +23 %", shown)
    listed = shown.partition("Events by shell version")[2]
    assert sum(map(int, re.findall(r"(\d+) %", listed))) == 100
    after = strip_tags(text(console, act("roll_back")))
    assert re.search(r"3 other versions +63 +23 % +keeps it", after)


def test_a_rollback_of_what_the_older_release_lacks_is_warned_of(
    console: Browser, published: Pipeline
) -> None:
    document = published.document("3.0.0")
    document["platforms"]["linux-x86_64"] = published.upload("linux-x86_64", "3.0.0")
    published.publish(published.signed(document))
    assert "Shells on linux-x86_64 are offered nothing." in text(console, act("roll_back"))


def test_a_halted_channel_says_so_and_is_resumed(console: Browser, published: Pipeline) -> None:
    assert "stay on their version" in text(console, act("halt"))
    halted = console.post(act("halt"), {"reason": "It crashes."}, follow=True)
    assert "stable is halted." in halted.content.decode()
    shown = text(console, PAGE)
    assert "Halted since" in shown
    assert "Offered once resumed" in shown
    assert f'href="{act("halt")}"' not in shown
    listed = reverse("admin:releases_shellchannel_changelist")
    assert '<span class="chip chip-stopped">Halted</span>' in text(console, listed)
    assert "offers version 2.0.0 again" in text(console, act("resume"))
    console.post(act("resume"), {"reason": "It was the network."})
    assert ShellChannel.objects.get().halted_at is None


def front(name: str) -> tuple[Any, str]:
    """A panel of the front page of the release role, and the page as text."""
    browser = Browser()
    user = User.objects.filter(email="release@roles.test").first()
    browser.force_login(user or operator_with(Role.RELEASE))
    page = browser.get("/admin/")
    panel = dict(page.context["glance"]["panels"])[f"admin/front/{name}.html"]
    return panel, " ".join(page.content.decode().split())


def test_no_act_of_an_operator_counts_under_last_publishes(
    console: Browser, published: Pipeline
) -> None:
    published.publish(published.release("3.0.0"), share=5)
    publishes = ["3.0.0", "2.0.0", "1.0.0"]

    def listed() -> list[str]:
        return [each.release.version for each in front("publications")[0]]

    assert listed() == publishes
    console.post(act("offer"), {"reason": "It works."})
    assert listed() == publishes
    [(to, label), _] = console.get(act("roll_back")).context["form"].fields["to"].choices
    assert label == "2.0.0, published 20 Nov 2025"
    console.post(act("roll_back"), {"to": to, "seen": to, "reason": "It crashes."})
    assert listed() == publishes
    # Each release was published when its pipeline did it.
    choices = console.get(act("roll_back")).context["form"].fields["to"].choices
    assert [label for _, label in choices] == [
        "3.0.0, published 20 Nov 2025",
        "1.0.0, published 20 Nov 2025",
    ]
    assert "release pipeline (secret 1)" in text(console, PAGE)
    # The same release with a newer signature is a publish.
    document = published.document("2.0.0")
    published.publish(published.signed(document, at=int(releasing.NOW.timestamp())))
    assert listed() == ["2.0.0", *publishes]


def test_the_cdn_of_a_halted_channel_serves_no_update(
    console: Browser, published: Pipeline, settings: Settings, now: datetime
) -> None:
    settings.CDN_PURGE = "purge"

    def cell() -> str:
        [(*_, served, _)] = front("channels")[0]
        return str(served)

    def purged(publication: Publication | None, **state: Any) -> None:
        Purge.objects.create(
            channel_id="stable", publication=publication, asked_at=now, due_at=now, **state
        )

    live = Publication.objects.of("stable")[0]
    assert cell() == "not checked"
    purged(live, confirmed_at=now)
    assert cell() == "serves it"
    assert "serves it, checked" in text(console, PAGE)
    ShellChannel.objects.update(halted_at=now)
    # Its files are still to be removed.
    assert cell() == "in progress"
    assert "Being purged" in text(console, PAGE)
    purged(None)
    assert cell() == "in progress"
    Purge.objects.filter(publication=None).update(confirmed_at=now)
    assert cell() == "serves no update"
    assert "serves no update, checked" in text(console, PAGE)
    assert "serves it" not in front("channels")[1] + text(console, PAGE)
    # Resumed: its files are still to be placed.
    ShellChannel.objects.update(halted_at=None)
    assert cell() == "in progress"
    assert "serves no update" not in text(console, PAGE)


def test_a_purge_that_failed_says_that_a_halted_channel_is_still_served(
    console: Browser, operator: User, published: Pipeline, settings: Settings, now: datetime
) -> None:
    settings.CDN_PURGE = "purge"
    ShellChannel.objects.update(halted_at=now)
    Purge.objects.create(
        channel_id="stable", asked_at=now, due_at=now, tried_at=now, attempts=3, failure="old_bytes"
    )
    shown = text(console, PAGE)
    assert "The CDN may still serve an update (old_bytes)." in shown
    assert '<span class="chip chip-refused">May still serve an update</span>' in shown
    assert "The CDN does not serve" not in shown
    troubles = " ".join(str(each) for each in items(operator=operator, now=now))
    assert "The CDN may still serve an update of stable, which is halted (old_bytes)." in troubles
    assert "what stable offers" not in troubles


def test_a_release_for_a_share_is_raised_and_offered_to_all(
    console: Browser, published: Pipeline
) -> None:
    assert act("raise_share") not in text(console, PAGE)
    published.publish(published.release("3.0.0"), share=5)
    for page in (PAGE, reverse("admin:releases_shellchannel_changelist")):
        assert '<span class="chip chip-running">Rolling out to 5 %</span>' in text(console, page)
    assert "3.0.0 is offered to 5 % of the shells, 2.0.0 to all others." in text(console, PAGE)
    assert "Shells that are already offered it still are." in text(console, act("raise_share"))
    refused = console.post(act("raise_share"), {"share": 4, "reason": "It works."})
    assert "A number above 5, at most 100." in refused.content.decode()
    raised = console.post(act("raise_share"), {"share": 25, "reason": "It works."}, follow=True)
    assert "stable offers 3.0.0 to 25 % of the shells." in raised.content.decode()
    whole = console.post(act("offer"), {"reason": "It works."}, follow=True)
    assert "stable offers 3.0.0 to all shells." in whole.content.decode()
    assert published.stored()[0] == bytes(Publication.objects.of("stable")[0].release.manifest)
    assert "Ended at 25 %" in text(console, PAGE)


def test_a_release_for_a_share_is_taken_back(console: Browser, published: Pipeline) -> None:
    published.publish(published.release("3.0.0"), share=5)
    assert "3.0.0 is offered to nobody" in text(console, act("end_share"))
    ended = console.post(act("end_share"), {"reason": "It crashes."}, follow=True)
    assert "stable offers 2.0.0 to all shells." in ended.content.decode()
    assert '<span class="chip chip-over">Ended at 5 %</span>' in text(console, PAGE)
    assert AuditEvent.objects.get(action="release:share_ended").reason == "It crashes."


def test_a_list_of_channels_asks_once_for_all(
    console: Browser, published: Pipeline, django_assert_max_num_queries: Any
) -> None:
    for name in ("beta", "nightly", "old"):
        published.publish(published.release("1.0.0", name), name, share=50)
    with django_assert_max_num_queries(12) as few:
        console.get(reverse("admin:releases_shellchannel_changelist"))
    ShellChannel.objects.bulk_create(ShellChannel(name=f"c{number}") for number in range(9))
    with django_assert_max_num_queries(len(few)):
        console.get(reverse("admin:releases_shellchannel_changelist"))


def test_an_operator_sees_the_reason_for_a_shells_version(
    console: Browser, published: Pipeline
) -> None:
    address = act("explain")
    assert address in text(console, PAGE)
    before = AuditEvent.objects.count() + 1
    assert "System" in text(console, address)
    shown = text(console, f"{address}?os=darwin&arch=aarch64&current_version=1.0.0")
    assert "It gets version 2.0.0 (200)" in shown
    assert "2.0.0 is newer than 1.0.0" in shown
    published.publish(published.release("3.0.0"), share=5)
    shown = text(console, f"{address}?os=darwin&current_version=2.0.0&install_id=one")
    assert f"is {place_of('one', Version.parse('3.0.0'))} of 0 to 99" in shown
    assert "did not send its install_id" in text(console, f"{address}?os=darwin")
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
    assert f"valid, by the key <code>{published.signer.name}</code>" in shown
    assert "version:2.0.0" in shown
    assert "should be" not in shown
    artifact.cache_control = "max-age=60"
    artifact.save()
    shown = text(console, page)
    assert '<strong class="wrong">max-age=60</strong>' in shown
    assert f"should be {IMMUTABLE_CACHE}" in shown


def test_a_channels_page_asks_little(
    console: Browser, published: Pipeline, django_assert_max_num_queries: Any
) -> None:
    for number in range(3, 9):
        published.publish(published.release(f"{number}.0.0"), share=5)
    with django_assert_max_num_queries(20):
        console.get(PAGE)
