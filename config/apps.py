from django.apps import AppConfig
from django.conf import settings
from django.core.checks import Tags, register
from django.utils.module_loading import import_string

from config.db.indexes import no_invalid_indexes
from config.db.roles import service_owns_nothing


class ComposeConfig(AppConfig):
    """Composition: knows every app and is imported by none."""

    name = "config"

    def ready(self) -> None:
        register(no_invalid_indexes, Tags.database)
        register(service_owns_nothing, Tags.database, deploy=True)
        if settings.SENTRY_DSN:
            # Loads the library only if errors are reported.
            import_string("config.observability.reports.start")(
                settings.SENTRY_DSN, settings.VERSION
            )
