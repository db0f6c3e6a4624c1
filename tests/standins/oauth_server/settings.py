"""A server as strict as providers are: PKCE, refresh tokens that rotate, and a family that ends with a reuse."""

import os

import dj_database_url

SECRET_KEY = "of a server that lives for one test run"
DEBUG = False
ALLOWED_HOSTS = ["127.0.0.1"]
USE_TZ = True
ROOT_URLCONF = "tests.standins.oauth_server.site"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
DATABASES = {"default": dj_database_url.parse(os.environ["OAUTHSERVER_DATABASE"])}
INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "oauth2_provider",
]
MIDDLEWARE = [
    "tests.standins.oauth_server.site.Ledger",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
]
LOGIN_PAGE = '<form method="post">{% csrf_token %}{{ form }}</form>'
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "OPTIONS": {
            "context_processors": ["django.template.context_processors.request"],
            "loaders": [
                (
                    "django.template.loaders.locmem.Loader",
                    {"registration/login.html": LOGIN_PAGE},
                ),
                "django.template.loaders.app_directories.Loader",
            ],
        },
    }
]
LOGIN_URL = "/login/"
# Quick: it guards nothing, and each call of the client would wait for it.
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
OAUTH2_PROVIDER = {
    "PKCE_REQUIRED": True,
    "ROTATE_REFRESH_TOKEN": True,
    "REFRESH_TOKEN_REUSE_PROTECTION": True,
    "REFRESH_TOKEN_GRACE_PERIOD_SECONDS": 0,
    "ACCESS_TOKEN_EXPIRE_SECONDS": 3600,
    "SCOPES": {"sheets": "Read and write sheets", "profile": "See who you are"},
}
