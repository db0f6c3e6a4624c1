"""The README's pictures of the console: ``make pictures`` takes them again."""

import os
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from accounts.audit import Actor
from accounts.models import User
from licensing.models import Plan
from tests.console import picturing
from tests.console.test_in_a_browser import base_url, desk  # noqa: F401 - a fixture
from tests.tools.folders import ROOT

# By the file's name, the page.
PICTURES = {"console-overview.png": "/admin/", "console-usage.png": "/admin/usage-and-money/"}
FOLDER = ROOT / "docs" / "pictures"
MOST_BYTES = 150_000
WIDTH = 1280


def width_of(picture: bytes) -> int:
    assert picture[:8] == b"\x89PNG\r\n\x1a\n"
    return int.from_bytes(picture[16:20], "big")


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_shown_and_small(name: str) -> None:
    picture = (FOLDER / name).read_bytes()
    assert (width_of(picture), len(picture) < MOST_BYTES) == (WIDTH, True)
    assert f"](docs/pictures/{name})" in (ROOT / "README.md").read_text()


def test_no_other_picture_is_kept() -> None:
    assert {each.name for each in FOLDER.iterdir()} == {*PICTURES}


@pytest.mark.wire
@pytest.mark.django_db(transaction=True)
def test_pictures_are_taken(
    base_url: str,  # noqa: F811
    operator: User,
    plan: Plan,
    signing_key: None,
    by: Actor,
    now: datetime,
    settings: Any,
    tmp_path: Path,
) -> None:
    """Written to the docs only where ``UPDATE_PICTURES`` is set."""
    folder = FOLDER if os.environ.get("UPDATE_PICTURES") else tmp_path
    settings.ENVIRONMENT_NAME, settings.LLM_DEFAULT_MODEL = "Production", "gpt-4.1"
    picturing.fill(plan=plan, by=by, now=now)
    view = {"viewport": {"width": WIDTH, "height": 720}, "timezone_id": "Europe/Berlin"}
    with desk(base_url, operator, **view) as page:
        for name, address in PICTURES.items():
            page.goto(address)
            page.evaluate("document.fonts.ready")
            picture = page.screenshot(path=folder / name)
            assert (width_of(picture), len(picture) < MOST_BYTES) == (WIDTH, True)
