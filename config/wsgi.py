"""What a WSGI server calls; ``config/serving.py`` is how ours does."""

import os

import django
from django.core.cache import close_caches
from django.core.handlers.base import reset_urlconf
from django.core.signals import request_finished, request_started
from django.db import close_old_connections, reset_queries
from django.urls import get_resolver

from config.entrance import Entrance
from config.observability import logs

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
django.setup(set_prefix=False)
application = Entrance()
# Every view is loaded before workers are forked: they share it, and none makes its first caller wait.
_ = get_resolver().url_patterns
# What Django does around every request, to no effect here: queries are noted only with DEBUG, a request finds no
# connection open because the one before gave it back at its end, our cache has nothing to close, and no thread is
# ever given a URLconf of its own.
request_started.disconnect(reset_queries)
request_started.disconnect(close_old_connections)
request_finished.disconnect(close_caches)
request_finished.disconnect(reset_urlconf)
# Last, so that what keeps the service from starting is still told in full.
logs.take_over()
