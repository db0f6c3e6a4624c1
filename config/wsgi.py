"""The WSGI application, which ``config/gunicorn.py`` serves."""

import os

from django.core.wsgi import get_wsgi_application
from django.urls import get_resolver

from config.platform.edge.body_limits import with_readable_bodies
from config.platform.observability import logs
from config.platform.runtime import serving
from llmproxy.prompts import tokenizers

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
application = with_readable_bodies(get_wsgi_application())
for each in serving.around_requests:
    application = each(application)
# Loads every view before the fork, so that workers share the memory and no first request waits.
_ = get_resolver().url_patterns
# Likewise: the library of vocabularies takes half a second to load and 130 MB.
tokenizers.load()
# Last, so that Python still prints errors of the start in full.
logs.take_over()
