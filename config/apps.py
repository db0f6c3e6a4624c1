from django.apps import AppConfig
from django.conf import settings
from django.utils.module_loading import import_string


class ComposeConfig(AppConfig):
    """Composition: knows every app and is imported by none."""

    name = "config"

    def ready(self) -> None:
        if settings.SENTRY_DSN:
            # Its library is loaded only where errors are reported.
            import_string("config.reports.start")(settings.SENTRY_DSN, settings.VERSION)
