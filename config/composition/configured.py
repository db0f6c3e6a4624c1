"""The console's page of settings: what is effective, what is not configured, and what does not work because of it.

It changes nothing and shows no secret: a secret is shown as set or not set.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import time, timedelta
from typing import Any, NamedTuple, cast

from django.conf import settings
from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import path
from django.utils import timezone
from django.utils.timesince import timesince

from accounts.models import SigningKey
from config.console.navigation import RIGHTS
from config.console.tables import Column, Row, Table
from config.console.template_tags import counted, row_link
from config.platform.edge.ratelimits.table import DEFAULTS, allowance
from config.platform.env.secret_files import Secret
from releases.manifests.minisign import PublicKey

# The user and password that any address may have.
USER = re.compile(r"(?<=://)[^/?#\s]+@")
SECONDS = {1: "second", 60: "minute", 3600: "hour", 86400: "day"}
# Variables that the settings keep under another name.
ATTRIBUTES = {
    "CORS_ORIGINS": "CORS_ALLOWED_ORIGINS",
    "OTEL_EXPORTER_OTLP_ENDPOINT": "OTLP_ENDPOINT",
}
# Addresses with a password, and a key, which the settings keep as plain values or in parts.
SET: Mapping[str, Callable[[], object]] = {
    "DATABASE_URL": lambda: settings.DATABASES["default"],
    "REPLICA_URL": lambda: settings.DATABASES.get("replica"),
    "CACHE_URL": lambda: settings.CACHE_URL,
    "SECRET_KEY": lambda: settings.SECRET_KEY,
    "EMAIL_URL": lambda: settings.EMAIL_BACKEND,
    "SENTRY_DSN": lambda: settings.SENTRY_DSN,
    "STORAGE_URL": lambda: settings.STORAGE_URL,
    "AUDIT_SYSLOG_URL": lambda: settings.AUDIT_SYSLOG_URL,
}


class SettingRow(NamedTuple):
    """A variable with its label, the unit of its value, and the words for none."""

    variable: str
    label: str
    unit: str = ""
    none: str = "none"


GROUPS: Mapping[str, tuple[SettingRow, ...]] = {
    "Service": (
        SettingRow("ENVIRONMENT_NAME", "Environment"),
        SettingRow("BASE_URL", "Address"),
        SettingRow("ALLOWED_HOSTS", "Host names"),
        SettingRow("HOST", "Listens on"),
        SettingRow("PORT", "Port"),
        SettingRow("WEB_WORKERS", "Web processes", none="one per core"),
        SettingRow("DRAIN_SECONDS", "Time to drain", "seconds"),
        SettingRow("TRUSTED_PROXIES", "Trusted proxies"),
        SettingRow("CORS_ORIGINS", "Webview origins"),
        SettingRow("PLAIN_CONNECTIONS", "Without TLS"),
        SettingRow("SECRET_KEY", "Cookie secret"),
        SettingRow("DATABASE_URL", "Database"),
        SettingRow("REPLICA_URL", "Read replica"),
        SettingRow("CACHE_URL", "Redis"),
        SettingRow("METRICS_PORT", "Metrics port"),
        SettingRow("WORKER_METRICS_PORT", "Worker's metrics port"),
        SettingRow("OTEL_EXPORTER_OTLP_ENDPOINT", "Traces"),
        SettingRow("SENTRY_DSN", "Error reports"),
    ),
    "Model calls": (
        SettingRow("LLM_PROVIDER", "Dialect of the provider “default”"),
        SettingRow("LLM_BASE_URL", "Address of the provider “default”"),
        SettingRow("LLM_API_KEY", "Key of the provider “default”"),
        SettingRow("LLM_DEFAULT_MODEL", "Default model"),
        SettingRow("LLM_MEMBERS", "Extra request fields"),
        SettingRow("LLM_FETCHES", "Sends files by URL", none="depends on the address"),
        SettingRow("LLM_LIMIT_NAME", "Name of the output limit", none="depends on the address"),
        SettingRow("LLM_CA_BUNDLE", "Trusted authorities", none="public authorities"),
        SettingRow("LLM_CONNECT_TIMEOUT", "Longest wait to connect", "seconds"),
        SettingRow("LLM_FIRST_BYTE_TIMEOUT", "Longest wait for the first byte", "seconds", "the longest silence"),
        SettingRow("LLM_READ_TIMEOUT", "Longest silence", "seconds"),
        SettingRow("LLM_MAX_SECONDS", "Longest call", "seconds"),
        SettingRow("LLM_KEEPALIVE_SECONDS", "Keep-alive after", "seconds"),
        SettingRow("LLM_STREAM_PACE_MS", "Stream pace", "ms", "every chunk at once"),
        SettingRow("LLM_UNSEEN_TOKENS_PER_SECOND", "Charge for unseen output", "tokens a second"),
    ),
    "Sign-in": (
        SettingRow("OPERATOR_SECOND_FACTOR", "Operators’ second factor", none="off"),
        SettingRow("SESSION_DAYS", "Longest session", "days", "no end"),
        SettingRow("REFRESH_LIFETIME", "Refresh token"),
        SettingRow("REFRESH_RACE_SECONDS", "Refresh token may be used twice within", "seconds", "0 seconds"),
        SettingRow("TOKEN_AUDIENCE", "Audience of access tokens"),
        SettingRow("RATE_LIMIT_NETWORKS", "Networks with other limits"),
        SettingRow("OAUTH_PROVIDERS", "Third parties to connect"),
    ),
    "Retention": (
        SettingRow("AUDIT_RETENTION_DAYS", "Audit log", "days"),
        SettingRow("TELEMETRY_RETENTION_DAYS", "Telemetry", "days"),
        SettingRow("TELEMETRY_DAILY_MB", "Telemetry of a client", "MiB a day"),
        SettingRow("AUDIT_SYSLOG_URL", "Audit log is also sent to syslog"),
        SettingRow("NIGHTLY_AT", "Nightly jobs (UTC)", none="your own schedule"),
    ),
    "Email and alerts": (
        SettingRow("DEFAULT_FROM_EMAIL", "Sender"),
        SettingRow("EMAIL_URL", "Mail server"),
        SettingRow("OPERATOR_EMAILS", "Alerts go to"),
        SettingRow("ALERT_WEBHOOK_URL", "Webhook"),
    ),
    "Billing": (
        SettingRow("STRIPE_API_KEY", "Stripe key"),
        SettingRow("STRIPE_API_BASE", "Stripe address", none="Stripe’s default"),
        SettingRow("STRIPE_PRODUCTS", "Products that count as licences", none="any"),
        SettingRow("GRACE_DAYS", "Grace period", "days"),
    ),
    "Releases": (
        SettingRow("CDN_URL", "CDN"),
        SettingRow("CDN_PURGE", "CDN is purged by"),
        SettingRow("STORAGE_URL", "Storage"),
        SettingRow("PUBLISH_PLATFORMS", "Platforms of every release"),
        SettingRow("PUBLISH_SECRETS", "Publish secrets"),
        SettingRow("PUBLISH_OIDC_ISSUER", "Issuer of identity tokens"),
        SettingRow("PUBLISH_OIDC_AUDIENCE", "Audience of identity tokens"),
        SettingRow("PUBLISH_OIDC_CLAIMS", "Claims of identity tokens"),
    ),
}  # fmt: skip
# Features that are off without a setting, as sentences.
MISSED: Mapping[str, str] = {
    "UPDATE_PUBLIC_KEY": "Releases of the shell cannot be published.",
    "APPS_PUBLIC_KEY": "Versions of apps cannot be published.",
    "CDN_PURGE": "The CDN may serve an older manifest for up to 6 minutes.",
    "STRIPE_API_KEY": "Billing changes no licence; operators decide each.",
    "ALERT_WEBHOOK_URL": "Alerts go out by email only.",
    "AUDIT_SYSLOG_URL": "The audit log is kept only in the database.",
    "OAUTH_PROVIDERS": "Nobody can connect a third party.",
    "OPERATOR_SECOND_FACTOR": "Operators sign in with only a password.",
    "NIGHTLY_AT": "The worker runs no nightly jobs; your own schedule has to.",
    "CACHE_URL": "Each process counts rate limits separately.",
    "TOKEN_AUDIENCE": "Access tokens have no audience.",  # nosec B105 - a sentence
    "REPLICA_URL": "Exports and reports read the primary database.",
    "METRICS_PORT": "No metrics from the web processes.",
    "WORKER_METRICS_PORT": "No metrics from the worker.",
    "OTEL_EXPORTER_OTLP_ENDPOINT": "No traces.",
    "SENTRY_DSN": "Errors are only logged.",
}  # fmt: skip


def value_of(variable: str) -> object:
    """The effective value of a variable; of a secret only whether it is set."""
    if variable in SET:
        return "set" if SET[variable]() else None
    value = getattr(settings, ATTRIBUTES.get(variable, variable))
    if isinstance(value, Secret):
        members = value.listed() if variable in {"PUBLISH_SECRETS", "ENCRYPTION_KEYS"} else []
        return (counted(len(members), "secret") if members else "set") if value() else None
    return value


def worded(row: SettingRow) -> str:
    value: Any = value_of(row.variable)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not value and not is_number:
        return row.none
    if is_number:
        whole = int(value) if value == int(value) else value
        return f"{whole:,} {row.unit}".strip()
    return WORDED.get(type(value), _listed)(value)


def _listed(value: Any) -> str:
    return ", ".join(map(str, value))


WORDED: Mapping[type, Callable[[Any], str]] = {
    bool: {True: "on"}.__getitem__,
    str: lambda text: USER.sub("…@", text),
    timedelta: lambda long: counted(long.days, "day"),
    time: lambda at: f"{at:%H:%M}",
    dict: lambda pairs: _listed(f"{name}={value}" for name, value in pairs.items()),
}


def missed() -> Iterator[tuple[str, str]]:
    """The variables that are not set, with what does not work because of it."""
    for variable, what in MISSED.items():
        if not value_of(variable):
            yield variable, what
    if not settings.PUBLISH_SECRETS() and not settings.PUBLISH_OIDC_ISSUER:
        yield "PUBLISH_SECRETS, PUBLISH_OIDC_ISSUER", "Pipelines cannot publish."


def limits() -> Table:
    rows = []
    for name in DEFAULTS:
        number, seconds = allowance(name)
        every = SECONDS.get(seconds, f"{seconds} seconds")
        set_by = "RATE_LIMITS" if settings.RATE_LIMITS.get(name) else "the default"
        rows.append(
            Row([name, number, f"a {every}" if seconds in SECONDS else f"in {every}", set_by])
        )
    columns = [Column("Limit"), Column("Requests", "number"), Column("Within"), Column("Set by")]
    return Table(columns, rows)


def keys(request: HttpRequest) -> Table:
    """Every key by its id and age; the private parts are shown nowhere."""
    now = timezone.now()
    rows = [
        Row([
            f"Signing key {key.kid[:12]}…", key.stage(at=now).label,
            f"{timesince(key.published_at, now, depth=1)} old",
        ], href=row_link(cast("Any", {"request": request}), key))
        for key in SigningKey.objects.verifying(at=now)
    ]  # fmt: skip
    for variable, what in (("UPDATE_PUBLIC_KEY", "Updates"), ("APPS_PUBLIC_KEY", "Apps")):
        raw = value_of(variable)
        state = f"minisign {PublicKey.of(raw).name}" if isinstance(raw, bytes) else "not set"
        rows.append(Row([f"{what}: {variable}", state, ""]))
    rows.append(Row(["Encryption: ENCRYPTION_KEYS", str(value_of("ENCRYPTION_KEYS")), ""]))
    return Table([Column("Key"), Column("State"), Column("Age")], rows)


def page(request: HttpRequest) -> HttpResponse:
    if not request.user.has_perm(RIGHTS["settings"]):
        raise PermissionDenied
    groups = [
        (title, [(each.label, worded(each), each.variable) for each in group])
        for title, group in GROUPS.items()
    ]
    context = {
        **admin.site.each_context(request),
        "title": "Settings",
        "version": settings.VERSION,
        "missed": list(missed()),
        "groups": groups,
        "limits": limits(),
        "keys": keys(request),
    }
    return TemplateResponse(request, "admin/console/settings.html", context)


site = cast("Any", admin.site)
site.pages += [path("settings/", site.admin_view(page), name="settings")]
