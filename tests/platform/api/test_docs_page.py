"""The docs page as a person sees it: in Chromium, under its own Content-Security-Policy."""

import threading
from collections.abc import Iterator
from wsgiref.simple_server import WSGIRequestHandler, make_server

import pytest
from django.core.signals import request_finished, request_started
from django.core.wsgi import get_wsgi_application
from django.db import close_old_connections
from django.test import override_settings
from playwright.sync_api import Page

from config.platform.api.docs import _document
from tests.browsers import chromium, note_complaints

pytestmark = pytest.mark.wire


class Quiet(WSGIRequestHandler):
    def log_message(self, *_: object) -> None:
        """Says nothing of requests."""


@pytest.fixture
def base_url() -> Iterator[str]:
    _document.cache_clear()
    for signal in (request_started, request_finished):
        signal.disconnect(close_old_connections)
    with override_settings(
        ROOT_URLCONF="tests.platform.api.test_docs",
        SECURE_SSL_REDIRECT=False,
        ALLOWED_HOSTS=["127.0.0.1"],
    ):
        server = make_server("127.0.0.1", 0, get_wsgi_application(), handler_class=Quiet)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join(10)
        server.server_close()
    for signal in (request_started, request_finished):
        signal.connect(close_old_connections)
    _document.cache_clear()


@pytest.fixture
def page() -> Iterator[Page]:
    with chromium() as browser:
        yield browser.new_page()


def test_the_page_shows_the_operations_without_other_hosts(page: Page, base_url: str) -> None:
    said: list[str] = []
    asked: list[str] = []
    note_complaints(page, said)
    page.on("request", lambda request: asked.append(request.url))
    page.goto(f"{base_url}/docs/")
    page.locator(".opblock-summary-path", has_text="/v1/small").click()
    page.locator(".responses-table .response").first.wait_for()
    assert page.title() == "Shell backend"
    assert said == []
    assert [url for url in asked if not url.startswith((base_url, "data:"))] == []
