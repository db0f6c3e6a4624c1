from django.apps import AppConfig
from django.conf import settings

from config import reports


class ComposeConfig(AppConfig):
    """Composition: knows every app and is imported by none."""

    name = "config"

    def ready(self) -> None:
        reports.start(settings.SENTRY_DSN, settings.VERSION)
