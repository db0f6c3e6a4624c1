"""What a WSGI server calls; ``config/serving.py`` is how ours does."""

import os

import django

from config import logs
from config.entrance import Entrance

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
django.setup(set_prefix=False)
logs.take_over()
application = Entrance()
