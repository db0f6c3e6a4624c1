"""The service's own gunicorn configuration with less time for a body."""

from config.gunicorn import *  # noqa: F403 - it patches first, and every name of it is a setting of gunicorn's

from config.platform.edge import body_limits  # isort: skip

body_limits.GRACE_SECONDS = 1.0
