"""Settings of every host: one file and no modes; differences come from the environment.

The README lists the variables; the start stops with a report of all missing or wrong ones.
"""

from datetime import time, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from accounts.connections import provider_settings
from config.platform.api.description import description_settings
from config.platform.db.connections import database
from config.platform.db.replica import REPLICA, ReplicaConnection
from config.platform.env import plain_connections, ports
from config.platform.env.addresses import (
    address_or_empty,
    certificates,
    sentry_dsn,
    webhook_or_empty,
)
from config.platform.env.hosts import is_loopback
from config.platform.env.reading import env, seal
from config.platform.env.secret_files import secret
from config.platform.env.values import (
    MOST_DAYS,
    STRIPE_KEY,
    fernet_keys,
    label,
    long_key,
    one_line,
    one_line_or_empty,
    sender,
)
from config.platform.observability.log_settings import LOG_SETTINGS
from config.platform.observability.syslog import Receiver
from llmproxy.catalogue.setting_readers import API_KEY, DIALECT, FETCHES, LIMIT_NAME, MEMBERS
from releases.manifests import platforms
from releases.pipeline import issuer_settings
from releases.setting_readers import CDN_PURGE_FORM, publish_secrets

BASE_DIR = Path(__file__).resolve().parent.parent
VERSION = "0.1.0"

# --- Set by operators -------------------------------------------------------------------------------

HOST: str = env.host("HOST", "") or "127.0.0.1"
PORT: int = env.whole("PORT", 8000, least=0, most=65_535) or 0
# None is one per core.
WEB_WORKERS: int | None = env.whole("WEB_WORKERS", None, least=0, most=4096)
METRICS_PORT: int | None = env.whole("METRICS_PORT", None, least=1, most=65_535)
WORKER_METRICS_PORT: int | None = env.whole("WORKER_METRICS_PORT", None, least=1, most=65_535)
DRAIN_SECONDS: float = env.number("DRAIN_SECONDS", 2.0, most=60.0) or 0.0
# Shown on every page of the console. Empty: nothing.
ENVIRONMENT_NAME: str = env.text("ENVIRONMENT_NAME", "", check=label) or ""
BASE_URL: str = env.own_address("BASE_URL") or "http://invalid"
CDN_URL: str = env.address("CDN_URL") or "http://invalid"
_database: dict[str, Any] = env.database_url("DATABASE_URL") or {}
_replica: dict[str, Any] | None = env.replica_url("REPLICA_URL", "")
CACHE_URL: str = env.redis_address("CACHE_URL") or ""
PLAIN_CONNECTIONS: frozenset[str] = env.plain_connections("PLAIN_CONNECTIONS", "") or frozenset()
SECRET_KEY: str = env.text("SECRET_KEY", check=long_key) or ""
ENCRYPTION_KEYS = secret("ENCRYPTION_KEYS", check=fernet_keys)
_host = urlsplit(BASE_URL).hostname or ""
# An empty value counts as none: without any host, no request would be answered.
ALLOWED_HOSTS: list[str] = env.allowed_hosts("ALLOWED_HOSTS", _host) or [_host]
TRUSTED_PROXIES = env.networks("TRUSTED_PROXIES", "")
CORS_ALLOWED_ORIGINS: list[str] = env.origins("CORS_ORIGINS", "")

# The dialect of the provider called default.
LLM_PROVIDER: str = env.text("LLM_PROVIDER", check=DIALECT) or ""
LLM_BASE_URL: str = env.address("LLM_BASE_URL") or ""
LLM_API_KEY = secret("LLM_API_KEY", check=API_KEY)
# Empty: the public authorities.
LLM_CA_BUNDLE: str = env.text("LLM_CA_BUNDLE", "", check=certificates) or ""
LLM_DEFAULT_MODEL: str = env.text("LLM_DEFAULT_MODEL", check=one_line) or ""
LLM_MEMBERS: str = env.text("LLM_MEMBERS", "", check=MEMBERS) or "listed"
LLM_FETCHES: str = env.text("LLM_FETCHES", "", check=FETCHES) or ""
LLM_LIMIT_NAME: str = env.text("LLM_LIMIT_NAME", "", check=LIMIT_NAME) or ""
LLM_CONNECT_TIMEOUT: float = env.number("LLM_CONNECT_TIMEOUT", 5.0, above=True)
# None: as long as for any silence.
LLM_FIRST_BYTE_TIMEOUT: float | None = env.number("LLM_FIRST_BYTE_TIMEOUT", None, above=True)
LLM_READ_TIMEOUT: float = env.number("LLM_READ_TIMEOUT", 60.0, above=True)
LLM_KEEPALIVE_SECONDS: float = env.number("LLM_KEEPALIVE_SECONDS", 10.0, above=True)
LLM_MAX_SECONDS: float = env.number("LLM_MAX_SECONDS", 600.0, above=True)
# The least time between two reads of a running stream; 0: every chunk at once.
LLM_STREAM_PACE_MS: float = env.number("LLM_STREAM_PACE_MS", 20.0, most=1_000.0)
# Charged for each second of silence of a call that was cut without a report.
LLM_UNSEEN_TOKENS_PER_SECOND: float = env.number(
    "LLM_UNSEEN_TOKENS_PER_SECOND", 100.0, most=1_000_000.0
)

OPERATOR_SECOND_FACTOR: bool = env.second_factor("OPERATOR_SECOND_FACTOR", address=BASE_URL)
SESSION_DAYS: int | None = env.days_or_none("SESSION_DAYS", "180")
# Empty: access tokens name no audience. A verifier that expects none refuses a token that names one.
TOKEN_AUDIENCE: str = env.text("TOKEN_AUDIENCE", "", check=one_line_or_empty) or ""
REFRESH_RACE_SECONDS: float = env.number("REFRESH_RACE_SECONDS", 0.0)
AUDIT_RETENTION_DAYS: int = env.whole("AUDIT_RETENTION_DAYS", 90, least=1, most=MOST_DAYS) or 90
# None: the audit log stays in the database.
AUDIT_SYSLOG_URL: Receiver | None = env.syslog_url("AUDIT_SYSLOG_URL", "")
RATE_LIMITS: dict[str, str] = env.rates("RATE_LIMITS", "")
RATE_LIMIT_NETWORKS = env.network_factors("RATE_LIMIT_NETWORKS", "")

PUBLISH_SECRETS = secret("PUBLISH_SECRETS", default="", check=publish_secrets)
# Exactly as in tokens, with a trailing slash if they have one.
PUBLISH_OIDC_ISSUER: str = env.text("PUBLISH_OIDC_ISSUER", "", check=address_or_empty) or ""
PUBLISH_OIDC_AUDIENCE: str = env.text("PUBLISH_OIDC_AUDIENCE", "", check=one_line_or_empty) or ""
PUBLISH_OIDC_CLAIMS: dict[str, str] = env.claims("PUBLISH_OIDC_CLAIMS", "") or {}
PUBLISH_PLATFORMS: list[str] = env.words("PUBLISH_PLATFORMS", "darwin-aarch64,windows-x86_64") or []
# The 42 bytes of a minisign public key.
UPDATE_PUBLIC_KEY: bytes | None = env.minisign_key("UPDATE_PUBLIC_KEY", "")
APPS_PUBLIC_KEY: bytes | None = env.minisign_key("APPS_PUBLIC_KEY", "")
_nowhere = {"kind": "file", "path": "/nonexistent"}
STORAGE_URL: dict[str, str] = env.storage_url("STORAGE_URL") or _nowhere
CDN_PURGE: str = env.text("CDN_PURGE", "", check=CDN_PURGE_FORM)
STRIPE_API_KEY = secret("STRIPE_API_KEY", default="", check=STRIPE_KEY)
STRIPE_API_BASE: str = env.text("STRIPE_API_BASE", "", check=address_or_empty) or ""
# Empty: every subscription of a customer pays for the licence.
STRIPE_PRODUCTS: list[str] = env.stripe_products("STRIPE_PRODUCTS", "") or []
GRACE_DAYS: int = env.whole("GRACE_DAYS", 14, least=1, most=MOST_DAYS) or 14
# Third parties that people can connect.
OAUTH_PROVIDERS = secret("OAUTH_PROVIDERS", default="", check=provider_settings.read)
_email: dict[str, Any] = env.email_url("EMAIL_URL") or {}
DEFAULT_FROM_EMAIL: str = env.text("DEFAULT_FROM_EMAIL", check=sender) or ""
OPERATOR_EMAILS: list[str] = env.emails("OPERATOR_EMAILS") or []
ALERT_WEBHOOK_URL = secret("ALERT_WEBHOOK_URL", default="", check=webhook_or_empty)
NIGHTLY_AT: time | None = env.time_of_day("NIGHTLY_AT", "02:30")
TELEMETRY_RETENTION_DAYS: int = (
    env.whole("TELEMETRY_RETENTION_DAYS", 90, least=1, most=MOST_DAYS) or 90
)
TELEMETRY_DAILY_MB: int = env.whole("TELEMETRY_DAILY_MB", 2048, least=1, most=1_000_000_000) or 2048
SENTRY_DSN: str = env.text("SENTRY_DSN", "", check=sentry_dsn)
OTLP_ENDPOINT: str = env.text("OTEL_EXPORTER_OTLP_ENDPOINT", "", check=address_or_empty)

_combined: dict[str, str] = {
    **issuer_settings.faults(
        issuer=PUBLISH_OIDC_ISSUER, audience=PUBLISH_OIDC_AUDIENCE, claims=PUBLISH_OIDC_CLAIMS
    ),
    **platforms.faults(PUBLISH_PLATFORMS),
    **plain_connections.faults(
        {"DATABASE_URL": _database, "REPLICA_URL": _replica}, CACHE_URL, allowed=PLAIN_CONNECTIONS
    ),
    **ports.faults(host=HOST, port=PORT, web=METRICS_PORT, worker=WORKER_METRICS_PORT),
}
if APPS_PUBLIC_KEY and APPS_PUBLIC_KEY == UPDATE_PUBLIC_KEY:
    # Signers of apps must not be able to sign a shell.
    _combined["APPS_PUBLIC_KEY"] = "Must differ from UPDATE_PUBLIC_KEY."
seal(_combined)

# --- Django -----------------------------------------------------------------------------------------

DEBUG = False
ROOT_URLCONF = "config.urls"
WSGI_APPLICATION = "config.wsgi.application"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
LANGUAGE_CODE = "en"
TIME_ZONE = "UTC"
APPEND_SLASH = False

INSTALLED_APPS = [
    "config.composition.apps.ConsoleConfig",
    # Before auth, whose commands createsuperuser and changepassword it replaces.
    "accounts",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "whitenoise.runserver_nostatic",
    "django.contrib.staticfiles",
    "django.contrib.postgres",
    "django_otp",
    "django_otp_webauthn",
    "corsheaders",
    "rest_framework",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "procrastinate.contrib.django",
    "config",
    "licensing",
    "usage",
    "llmproxy",
    "releases",
    "telemetry",
]

MIDDLEWARE = [
    # Outermost, so that every answer has its id, headers and log line, and later middleware the client's address.
    "config.platform.edge.outermost.EdgeMiddleware",
    # Before every middleware that can refuse or redirect a probe.
    "config.platform.edge.health.HealthMiddleware",
    # Around everything that can fail.
    "config.platform.problems.rendering.ProblemMiddleware",
    # Redirects to https before anything else.
    "django.middleware.security.SecurityMiddleware",
    # Files are public: no limit counts them.
    "config.platform.edge.public_files.PublicFilesMiddleware",
    # Refusals here cost neither a session nor a query.
    "config.platform.edge.ratelimits.limits.AddressLimitMiddleware",
    "config.platform.edge.body_limits.BodyLimitMiddleware",
    # Checks the host.
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    # Session, user, second factor and messages, for pages only.
    "config.platform.edge.pages.PageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
            "libraries": {
                "console": "config.console.template_tags",
                "console_lists": "config.console.lists.tags",
                "versions": "releases.admin.version_tags",
            },
        },
    },
]

DATABASES = {"default": database(_database, max_size=16, timeout=5)}
if _replica:
    DATABASES[REPLICA] = database(
        _replica, connection_class=ReplicaConnection, max_size=4, timeout=2
    )

# Without an address, each process has counters of its own.
CACHES = {
    "default": {
        "BACKEND": "config.platform.edge.ratelimits.cache.CounterCache",
        "LOCATION": CACHE_URL,
    }
}

# The storage of releases; nothing else is stored as files.
if STORAGE_URL["kind"] == "s3":
    _objects = {name: value for name, value in STORAGE_URL.items() if name != "kind"}
    _published = {"BACKEND": "releases.delivery.object_storage.Objects", "OPTIONS": _objects}
else:
    _files = {"location": STORAGE_URL["path"]}
    _published = {"BACKEND": "releases.delivery.storage.Files", "OPTIONS": _files}
STORAGES: dict[str, dict[str, Any]] = {
    "default": _published,
    "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"},
}

STATIC_URL = "static/"
# Served straight from the packages, without a build step.
WHITENOISE_USE_FINDERS = True
# Fonts, whose names hold the hash of their contents.
WHITENOISE_IMMUTABLE_FILE_TEST = r"\.[0-9a-f]{12}\.woff2$"

# --- Transport --------------------------------------------------------------------------------------

_https = BASE_URL.startswith("https://")
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
SECURE_SSL_REDIRECT = SECURE_HSTS_INCLUDE_SUBDOMAINS = SECURE_HSTS_PRELOAD = _https
SECURE_HSTS_SECONDS = 31_536_000 if _https else 0
SECURE_REFERRER_POLICY = "same-origin"
SESSION_ENGINE = "config.platform.session_store"
# Browsers accept a cookie of such a name only over https, for exactly this host and all of its paths.
_host_only = "__Host-" if _https else ""
SESSION_COOKIE_NAME = f"{_host_only}sessionid"
SESSION_COOKIE_AGE = 12 * 3600
CSRF_COOKIE_NAME = f"{_host_only}csrftoken"
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = _https
MESSAGE_STORAGE = "config.console.message_cookie.MessageCookie"
CSRF_TRUSTED_ORIGINS = [BASE_URL]
# Headers that a webview may send: this API's own, and those that SDKs add or offer as an option. WebKit requests
# `user-agent` too, which Chromium drops.
CORS_ALLOW_HEADERS = [
    "accept", "authorization", "content-type", "idempotency-key", "if-none-match", "user-agent", "x-api-key",
    "x-client-request-id", "x-request-id",
    # OpenAI's and Anthropic's SDKs, and libraries built on them.
    "anthropic-beta", "anthropic-dangerous-direct-browser-access", "anthropic-user-profile-id", "anthropic-version",
    "anthropic-workspace-id", "openai-beta", "openai-organization", "openai-project",
    "x-stainless-arch", "x-stainless-async", "x-stainless-custom-poll-interval", "x-stainless-helper",
    "x-stainless-helper-method", "x-stainless-lang", "x-stainless-os", "x-stainless-package-version",
    "x-stainless-poll-helper", "x-stainless-retry-count", "x-stainless-runtime", "x-stainless-runtime-version",
    "x-stainless-timeout",
    # Tracing.
    "baggage", "sentry-trace", "traceparent", "tracestate",
]  # fmt: skip
CORS_EXPOSE_HEADERS = [
    "etag", "request-id", "retry-after", "www-authenticate", "x-dropped-members", "x-manifest-signature",
    "x-output-limit", "x-ratelimit-degraded", "x-ratelimit-limit-requests", "x-ratelimit-limit-tokens",
    "x-ratelimit-remaining-requests",
    "x-ratelimit-remaining-tokens", "x-ratelimit-reset-requests", "x-ratelimit-reset-tokens", "x-should-retry",
    "x-request-id", "x-tokens-remaining-month", "x-tokens-remaining-day",
]  # fmt: skip

# More than the largest body of any address (a model call); config/platform/edge/body_limits.py has a limit for each.
DATA_UPLOAD_MAX_MEMORY_SIZE = 8 * 1024 * 1024 + 1

# --- Identity ---------------------------------------------------------------------------------------

AUTH_USER_MODEL = "accounts.User"
AUTHENTICATION_BACKENDS = [
    # Decides rights, only by operators' roles, and so comes first.
    "config.composition.roles.RoleBackend",
    # Authenticates; sessions store its name.
    "django.contrib.auth.backends.ModelBackend",
]
# One entry: with a second one, the time of a check would reveal dormant accounts.
PASSWORD_HASHERS = ["accounts.hashers.GatedArgon2Hasher"]
_password_length = {"min_length": 12}
AUTH_PASSWORD_VALIDATORS = [
    {
        "NAME": "django.contrib.auth.password_validation.MinimumLengthValidator",
        "OPTIONS": _password_length,
    },
    {
        "NAME": "django.contrib.auth.password_validation.CommonPasswordValidator",
        "OPTIONS": {"password_list_path": BASE_DIR / "accounts/people/common_passwords.txt.gz"},
    },
    {"NAME": "accounts.people.password_strength.StrengthValidator", "OPTIONS": _password_length},
]
# Passkeys belong to a host name. They refuse numeric addresses, so on loopback the console is opened by name.
_passkey_host = "localhost" if is_loopback(BASE_URL) else _host
_passkey_port = f":{urlsplit(BASE_URL).port}" if urlsplit(BASE_URL).port else ""
OTP_WEBAUTHN_RP_ID = _passkey_host
OTP_WEBAUTHN_RP_NAME = "Shell backend"
OTP_WEBAUTHN_ALLOWED_ORIGINS = [f"{urlsplit(BASE_URL).scheme}://{_passkey_host}{_passkey_port}"]
# A passkey supplements the password and never replaces it.
OTP_WEBAUTHN_ALLOW_PASSWORDLESS_LOGIN = False
OTP_WEBAUTHN_HELPER_CLASS = "accounts.admin.second_factor.passkeys.PasskeyHelper"
# Refused ceremonies are in the audit log.
OTP_WEBAUTHN_EXCEPTION_LOGGER_NAME = ""
CSRF_FAILURE_VIEW = "config.platform.problems.rendering.csrf_failure"
LOGIN_URL = "/admin/login/"
LOGIN_REDIRECT_URL = "/admin/"

SIMPLE_JWT = {
    "ACCESS_TOKEN_LIFETIME": timedelta(hours=1),
    "ALGORITHM": "RS256",
    "ISSUER": BASE_URL,
    # For a token's start, where a host's clock was set back; AccessToken checks the expiry without it.
    "LEEWAY": 3600,
}
REFRESH_LIFETIME = timedelta(days=30)

# --- API --------------------------------------------------------------------------------------------

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "accounts.sessions.authentication.AccessTokenAuthentication"
    ],
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAuthenticated"],
    "DEFAULT_THROTTLE_CLASSES": ["config.platform.edge.ratelimits.throttling.PersonThrottle"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["config.platform.api.parsers.ObjectParser"],
    "DEFAULT_CONTENT_NEGOTIATION_CLASS": "config.platform.api.negotiation.Negotiation",
    "DEFAULT_METADATA_CLASS": "config.platform.api.metadata.NoMetadata",
    "DEFAULT_SCHEMA_CLASS": "config.platform.api.schema.Schema",
    "EXCEPTION_HANDLER": "config.platform.problems.rendering.for_rest_framework",
    "UNAUTHENTICATED_USER": None,
    # Unknown members of a query are ignored; a `format` would otherwise answer 404.
    "URL_FORMAT_OVERRIDE": None,
}

SPECTACULAR_SETTINGS = {
    **description_settings(version=VERSION, base_url=BASE_URL),
    "ENUM_NAME_OVERRIDES": {"ConnectionState": "accounts.models.Connection.State"},
    "POSTPROCESSING_HOOKS": [
        "drf_spectacular.hooks.postprocess_schema_enums",
        "llmproxy.api.schema.describe_calls",
        "config.platform.api.schema.describe_problems",
        "config.platform.api.spelling_out.spell_out",
    ],
}

# --- Rate limits ------------------------------------------------------------------------------------

# These are the defaults. Django's look-up of a missing setting is slow, which would delay every count.
RATELIMIT_ENABLE = True
RATELIMIT_USE_CACHE = "default"
RATELIMIT_CACHE_PREFIX = "rl:"
RATELIMIT_HASH_ALGORITHM = sha256
# The counting cache increments atomically; the library knows other backends by name only.
SILENCED_SYSTEM_CHECKS = ["django_ratelimit.W001"]

# --- Jobs, mail, logs -----------------------------------------------------------------------------

# Modules of tasks in rooms; procrastinate finds the module ``tasks`` of an app by itself.
PROCRASTINATE_IMPORT_PATHS = [
    "accounts.worker.tasks",
    "config.platform.jobs.tasks",
    "config.composition.operation.tasks",
    "config.composition.attention.tasks",
]
# Operators discard and retry failed jobs in the console.
PROCRASTINATE_READONLY_MODELS = False

EMAIL_BACKEND, EMAIL_FILE_PATH = _email.get("EMAIL_BACKEND", ""), _email.get("EMAIL_FILE_PATH")
EMAIL_HOST, EMAIL_PORT = _email.get("EMAIL_HOST") or "", _email.get("EMAIL_PORT") or 25
EMAIL_HOST_USER = _email.get("EMAIL_HOST_USER") or ""
EMAIL_HOST_PASSWORD = _email.get("EMAIL_HOST_PASSWORD") or ""
EMAIL_USE_TLS: bool = _email.get("EMAIL_USE_TLS", False)
EMAIL_USE_SSL: bool = _email.get("EMAIL_USE_SSL", False)
EMAIL_TIMEOUT = _email.get("EMAIL_TIMEOUT") or 20

LOGGING = LOG_SETTINGS
