"""The WSGI application; ``config/gunicorn.py`` is how it is served."""

import os

from django.core.wsgi import get_wsgi_application
from django.urls import get_resolver

from config.middleware.body_limits import with_readable_bodies
from config.observability import logs

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
application = with_readable_bodies(get_wsgi_application())
# Loads every view before workers are forked: they share the memory, and no first caller waits.
_ = get_resolver().url_patterns
# Last, so that an error of the start is still shown in full.
logs.take_over()
