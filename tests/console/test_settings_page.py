"""The page of settings shows what is effective and what is missing, and never a secret."""

import pytest
from django.conf import settings as configured
from pytest_django.fixtures import Settings

from accounts.models import Role
from config.composition.configured import GROUPS, MISSED
from config.platform.env.secret_files import Secret
from tests.conftest import Browser
from tests.console.test_roles import operator_with
from tests.tools.variables import read_by_settings

pytestmark = pytest.mark.django_db
PAGE = "/admin/settings/"
# Shown as a table of their own, or said elsewhere.
ELSEWHERE = {"ENCRYPTION_KEYS", "UPDATE_PUBLIC_KEY", "APPS_PUBLIC_KEY", "RATE_LIMITS"}


def text(browser: Browser) -> str:
    return " ".join(browser.get(PAGE).content.decode().split())


def test_every_variable_that_the_service_reads_has_its_place() -> None:
    shown = {each.variable for group in GROUPS.values() for each in group}
    assert {*read_by_settings()} - ELSEWHERE == shown - {"REFRESH_LIFETIME"}
    assert {*MISSED} <= {*read_by_settings()}


def test_the_page_shows_effective_settings_and_unavailable_functions(
    console: Browser, signing_key: None, settings: Settings
) -> None:
    settings.AUDIT_RETENTION_DAYS = 30
    settings.CDN_PURGE = ""
    settings.RATE_LIMITS = {"llm.user": "7/2s"}
    shown = text(console)
    assert "<dd> 30 days </dd>" in shown
    assert "The CDN may serve an older manifest for up to 6 minutes." in shown
    assert "in 2 seconds" in shown
    assert "Signing key" in shown
    settings.CDN_PURGE = "purge"
    assert "may serve an older manifest" not in text(console)


def test_the_page_shows_no_secret(console: Browser, settings: Settings) -> None:
    """Also none within an address (appsmithorg/appsmith#42169)."""
    settings.STRIPE_API_KEY = Secret("STRIPE_API_KEY", "sk_live_a-canary-of-a-key")
    settings.PUBLISH_SECRETS = Secret("PUBLISH_SECRETS", f"{'canary' * 6},{'second' * 6}")
    for name in (
        "LLM_BASE_URL",
        "STRIPE_API_BASE",
        "OTLP_ENDPOINT",
        "PUBLISH_OIDC_ISSUER",
        "CDN_URL",
    ):
        setattr(settings, name, f"https://canary:canary@{name.lower()}.test/v1")
    shown = text(console)
    assert "canary" not in shown
    assert "https://…@llm_base_url.test/v1" in shown
    assert "2 secrets" in shown
    secrets = [
        configured.SECRET_KEY,
        configured.LLM_API_KEY(),
        configured.DATABASES["default"]["PASSWORD"],
    ]
    assert not [each for each in secrets if each and each in shown]


@pytest.mark.parametrize("role", Role.values)
def test_owners_and_auditors_open_it(role: str) -> None:
    browser = Browser()
    browser.force_login(operator_with(Role(role)))
    may = role in {Role.OWNER, Role.AUDITOR}
    assert browser.get(PAGE).status_code == (200 if may else 403)
    assert (PAGE in browser.get("/admin/").content.decode()) == may
