"""The settings of the service with everything logged that anything in it has to say."""

from typing import Any

from config import settings
from config.settings import *  # noqa: F403

_quiet: dict[str, Any] = settings.LOGGING
LOGGING = {**_quiet, "root": {**_quiet["root"], "level": "DEBUG"}}
