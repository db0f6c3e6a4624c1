"""What a WSGI server calls; ``config/serving.py`` is how ours does."""

import os

import django
from django.urls import get_resolver

from config import logs
from config.entrance import Entrance

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
django.setup(set_prefix=False)
application = Entrance()
# Every view is loaded before workers are forked: they share it, and none makes its first caller wait.
_ = get_resolver().url_patterns
# Last, so that what keeps the service from starting is still told in full.
logs.take_over()
