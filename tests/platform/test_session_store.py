"""Nothing that stands in the table of the console's sessions signs anybody in."""

from datetime import timedelta

import pytest
from django.contrib.sessions.models import Session
from django.utils import timezone

from config.platform.session_store import SessionStore, row_key
from tests.conftest import Browser

pytestmark = pytest.mark.django_db


def test_the_key_of_a_session_stands_in_its_cookie_alone(console: Browser) -> None:
    assert console.get("/admin/").status_code == 200
    cookie = console.cookies["__Host-sessionid"].value
    row = Session.objects.get()
    assert row.session_key == row_key(cookie)
    assert cookie not in row.session_data


def test_the_rows_of_the_table_open_nothing(console: Browser, stranger: Browser) -> None:
    stranger.cookies["__Host-sessionid"] = Session.objects.get().session_key
    assert stranger.get("/admin/").status_code == 302
    # Nor does a session from before keys were hashed.
    Session.objects.update(session_key="k" * 32)
    stranger.cookies["__Host-sessionid"] = "k" * 32
    assert stranger.get("/admin/").status_code == 302


def test_a_session_is_kept_changed_and_ended_by_its_key() -> None:
    store = SessionStore()
    store["colour"] = "red"
    store.save()
    key = store.session_key
    assert key
    assert store.exists(key)
    assert SessionStore(key)["colour"] == "red"

    store["colour"] = "blue"
    store.save()
    assert SessionStore(key)["colour"] == "blue"
    assert Session.objects.count() == 1

    store.cycle_key()
    assert not SessionStore().exists(key)
    assert SessionStore(store.session_key)["colour"] == "blue"
    store.flush()
    assert not Session.objects.exists()


def test_an_expired_session_is_empty() -> None:
    store = SessionStore()
    store["colour"] = "red"
    store.save()
    Session.objects.update(expire_date=timezone.now() - timedelta(seconds=1))
    assert "colour" not in SessionStore(store.session_key)


def test_nobody_chooses_the_key_of_a_session() -> None:
    store = SessionStore("chosen-by-a-stranger")
    store["colour"] = "red"
    store.save()
    assert store.session_key != "chosen-by-a-stranger"
    assert SessionStore(store.session_key)["colour"] == "red"
