"""The console's font is shipped with its licence, by names that may be cached for ever."""

import json
import re
from hashlib import sha256
from pathlib import Path

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from django.test import Client, override_settings

from config.composition.problem_pages import CARD_POLICY
from config.composition.site import POLICY
from tests.supply import bill, fonts
from tests.tools.folders import ROOT

SHEET = (fonts.FOLDER / "console.css").read_text()
FRAME = (ROOT / "templates" / "admin" / "base_site.html").read_text()


def test_every_file_is_named_by_its_contents_and_asked_for() -> None:
    names = [each.name for each in fonts.files()]
    assert [sha256(each.read_bytes()).hexdigest()[:12] for each in fonts.files()] == [
        name.split(".")[1] for name in names
    ]
    assert sorted(re.findall(r'url\("([^"]+\.woff2)"\)', SHEET)) == names
    assert set(re.findall(r"console/([\w.-]+\.woff2)", FRAME)) < set(names)
    assert SHEET.count("font-display: swap") == len(names)


def test_the_one_that_every_page_loads_is_small() -> None:
    (first,) = re.findall(r"console/([\w.-]+\.woff2)", FRAME)
    assert (fonts.FOLDER / first).stat().st_size < 60_000


def test_a_font_is_fetched_once() -> None:
    """A preload without ``crossorigin`` is fetched again (bluesky-social/social-app#6992)."""
    (preload,) = re.findall(r"<link rel=\"preload\"[^>]*>", FRAME)
    assert {'as="font"', 'type="font/woff2"', "crossorigin>"} <= {*preload.split()}


def test_every_page_of_the_console_may_load_it() -> None:
    """A policy without ``font-src`` blocks a service's own font (jhaals/yopass#1272)."""
    for policy in (POLICY, CARD_POLICY):
        assert "; font-src 'self';" in policy


def test_its_licence_stands_beside_it() -> None:
    assert "SIL OPEN FONT LICENSE Version 1.1" in fonts.LICENCE.read_text()
    assert f"{fonts.VERSION} of {fonts.PACKAGE}" in SHEET


@override_settings(SECURE_SSL_REDIRECT=False)
def test_browsers_keep_a_font_and_ask_again_for_the_style_sheet(client: Client) -> None:
    font = client.get(f"/static/console/{fonts.files()[0].name}")
    sheet = client.get("/static/console/console.css")
    assert (font.status_code, font["Content-Type"]) == (200, "font/woff2")
    assert "immutable" in font["Cache-Control"]
    assert "immutable" not in sheet["Cache-Control"]
    for response in (font, sheet):
        b"".join(response)


def test_the_bill_of_materials_has_it(tmp_path: Path) -> None:
    lock, written = tmp_path / "requirements.lock", tmp_path / "bill.json"
    lock.write_text(f"django==5.2.19 \\\n    --hash=sha256:{'a' * 64}\n")
    assert bill.main([str(lock), str(written)]) == 0
    text = written.read_text()
    font = next(each for each in json.loads(text)["components"] if each["name"] == fonts.PACKAGE)
    assert font["licenses"] == [{"license": {"id": "OFL-1.1"}}]
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
