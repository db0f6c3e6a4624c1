"""Shells by version on the front page: how many people have which version, and shares that add up."""

from datetime import datetime, timedelta
from uuid import UUID, uuid4

import pytest

from accounts.models import Role
from config.console.shares import percents
from telemetry.models import Event
from telemetry.volumes import people_by_shell_version
from tests.conftest import Browser
from tests.console.test_roles import operator_with

pytestmark = pytest.mark.django_db


def came(
    now: datetime, version: str, *, person: UUID | None = None, number: int = 1, app: str = ""
) -> None:
    """Events of one person."""
    person, client = person or uuid4(), uuid4()
    Event.objects.bulk_create(
        Event(
            event_id=uuid4(), client_id=client, user_id=person, name="x", app=app,
            shell_version=version, occurred_at=now, received_at=now,
        )
        for _ in range(number)
    )  # fmt: skip


def panel() -> tuple[list[tuple[str, int, int]], str]:
    browser = Browser()
    browser.force_login(operator_with(Role.RELEASE))
    page = browser.get("/admin/")
    found = dict(page.context["glance"]["panels"])["admin/front/shells.html"]
    return found, " ".join(page.content.decode().split())


def test_people_are_counted_and_no_events_also_where_apps_alone_report(now: datetime) -> None:
    came(now, "4.8.1", number=40, app="notes")
    came(now, "4.8.1", number=3, app="forms")
    came(now, "4.8.0", number=20)
    came(now, "", number=1, app="mail")
    found, page = panel()
    assert found == [("4.8.1", 2, 50), ("", 1, 25), ("4.8.0", 1, 25)]
    assert "No shell has reported today." not in page
    assert "unknown" in page


def test_a_person_counts_once_by_the_last_version_that_was_named(now: datetime) -> None:
    anna, bert = uuid4(), uuid4()
    for version in ("4.7.0", "4.8.0", ""):
        came(now, version, person=anna, number=5)
    came(now, "4.8.0", person=bert, app="notes")
    came(now, "4.7.0", person=bert)
    came(now - timedelta(days=1), "1.0.0")
    assert people_by_shell_version(now.date()) == [("4.7.0", 1), ("4.8.0", 1)]


def test_no_shell_has_reported_only_where_nothing_came(now: datetime) -> None:
    came(now - timedelta(days=1), "4.8.0")
    found, page = panel()
    assert found == []
    assert "No shell has reported today." in page


def test_the_versions_beyond_the_eighth_are_one_line_and_all_add_up(now: datetime) -> None:
    for minor in range(11):
        came(now, f"4.{minor:02}.0", number=11 - minor)
    found, _ = panel()
    assert len(found) == 9
    assert found[-1] == ("3 other versions", 3, 28)
    assert sum(number for _, number, _ in found) == 11
    assert sum(percent for *_, percent in found) == 100


def test_a_share_below_one_percent_is_not_called_nothing(now: datetime) -> None:
    for _ in range(300):
        came(now, "4.8.0")
    came(now, "4.7.0")
    found, page = panel()
    assert [percent for *_, percent in found] == [100, 0]
    assert "&lt;1 %" in page


@pytest.mark.parametrize(
    ("parts", "shown"),
    [
        pytest.param((1, 1, 1), [34, 33, 33], id="IATI/D-Portal#367, metabase/metabase#74636"),
        pytest.param((905, 85, 10), [91, 8, 1], id="vtmocanu/uzi#1185"),
        pytest.param((12, 4, 1), [71, 23, 6], id="PoetOS/moodle-mod_questionnaire#343"),
        pytest.param((392, 3209, 311), [10, 82, 8], id="floors of 99"),
        pytest.param((1, 1, 1, 1, 1, 1), [17, 17, 17, 17, 16, 16], id="floors of 96"),
        pytest.param((5, 0), [100, 0], id="one alone"),
        pytest.param((0, 0), [0, 0], id="nothing"),
        pytest.param((), [], id="no parts"),
    ],
)
def test_percents_of_a_whole_add_up(parts: tuple[int, ...], shown: list[int]) -> None:
    assert percents(parts) == shown
