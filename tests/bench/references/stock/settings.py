"""Settings of the stock project. Its database and its key come from the environment, as the service's do."""

import os
from datetime import timedelta

from config import settings as ours

HOST, PORT, WEB_WORKERS = ours.HOST, ours.PORT, ours.WEB_WORKERS
ALLOWED_HOSTS = ours.ALLOWED_HOSTS
SECRET_KEY = ours.SECRET_KEY
LLM_MAX_SECONDS, DRAIN_SECONDS = ours.LLM_MAX_SECONDS, ours.DRAIN_SECONDS
METRICS_PORT = ours.METRICS_PORT
LOGGING = ours.LOGGING
DEBUG = False
USE_TZ = True
ROOT_URLCONF = "tests.bench.references.stock.urls"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "rest_framework",
    "rest_framework_simplejwt.token_blacklist",
    "tests.bench.references.stock",
]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.middleware.common.CommonMiddleware",
]
# The service's server and a database of its own there; pooled, as Django can do it by itself.
DATABASES = {
    "default": {
        **ours.DATABASES["default"],
        "CONN_HEALTH_CHECKS": False,
        "OPTIONS": {"pool": {"min_size": 0, "max_size": 16, "timeout": 5}},
    }
}
# With the parameters of the service, so that signing in compares everything else; Django's own would take five times
# as long.
PASSWORD_HASHERS = ["tests.bench.references.stock.hashers.SmallArgon2Hasher"]
REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "rest_framework_simplejwt.authentication.JWTAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAuthenticated"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
}
SIMPLE_JWT = {
    "ALGORITHM": "RS256",
    "SIGNING_KEY": os.environ["STOCK_SIGNING_KEY"],
    "VERIFYING_KEY": os.environ["STOCK_VERIFYING_KEY"],
    "ACCESS_TOKEN_LIFETIME": timedelta(hours=1),
    "REFRESH_TOKEN_LIFETIME": timedelta(days=30),
    "ROTATE_REFRESH_TOKENS": True,
    "BLACKLIST_AFTER_ROTATION": True,
}
