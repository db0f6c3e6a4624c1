"""Chromium, and its complaints about a page."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from playwright.sync_api import Browser, ConsoleMessage, Page, sync_playwright

# Chromium says so where the driver types into a field before the page has given it the focus.
TYPED_TOO_EARLY = "Autofocus processing was blocked"
# The longest time of a page on a busy machine, in milliseconds; the library waits for 5 or 30 s.
LONGEST = 60_000
# A browser's message about data that it was told to forget.
FORGOTTEN = "Clear-Site-Data header on"
# The machine has gained or lost a network interface, which is not the page's fault: Chromium drops what it is loading.
OTHER_NETWORK = "Failed to load resource: net::ERR_NETWORK_CHANGED"

SCREENS: Final[dict[str, dict[str, Any]]] = {
    "desk": {"viewport": {"width": 1280, "height": 900}, "color_scheme": "light"},
    "phone": {"viewport": {"width": 390, "height": 844}, "color_scheme": "dark"},
}


@contextmanager
def chromium() -> Iterator[Browser]:
    """The system's Chromium. Django may not ask the database before it is closed: the driver has an event loop."""
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    assert found, "Chromium is not installed"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=found, args=["--no-sandbox"], timeout=LONGEST
        )
        yield browser
        browser.close()


def note_complaints(page: Page, complaints: list[str]) -> None:
    """Adds to the list what the browser complains of from now on, violations of the page's policy included."""

    def note(message: ConsoleMessage) -> None:
        if not message.text.startswith((TYPED_TOO_EARLY, FORGOTTEN, OTHER_NETWORK)):
            complaints.append(f"{message.text} {message.location}")

    page.on("console", note)
    page.on("pageerror", lambda error: complaints.append(str(error)))


def take_act(page: Page, name: str) -> None:
    """Follows an act on the row that is shown, out of the menu *More* where it is not in sight."""
    # A link missing from one half of the page may be on the other half.
    page.wait_for_load_state()
    if page.get_by_role("link", name=name).count() == 0:
        page.locator(".actions summary", has_text="More").click()
    page.get_by_role("link", name=name).first.click()
