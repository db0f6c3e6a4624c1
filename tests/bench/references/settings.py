"""Settings for a reference with neither database nor apps; others take these and add."""

import os

from config import settings as ours

HOST, PORT, WEB_WORKERS = ours.HOST, ours.PORT, ours.WEB_WORKERS
ALLOWED_HOSTS = ours.ALLOWED_HOSTS
SECRET_KEY = ours.SECRET_KEY
LLM_MAX_SECONDS, DRAIN_SECONDS = ours.LLM_MAX_SECONDS, ours.DRAIN_SECONDS
METRICS_PORT = ours.METRICS_PORT
LOGGING = ours.LOGGING
DEBUG = False
ROOT_URLCONF = os.environ.get("BENCH_URLS")
INSTALLED_APPS: list[str] = []
MIDDLEWARE: list[str] = []
USE_TZ = True
