"""The service's own gunicorn configuration with less patience for stalled clients."""

from config.gunicorn import *  # noqa: F403 - it patches first, and every name of it is a setting of gunicorn's

from config import gunicorn  # isort: skip

gunicorn.STALLED_SECONDS = 1
