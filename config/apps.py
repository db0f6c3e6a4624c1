from importlib import import_module

from django.apps import AppConfig
from django.core.checks import Tags, register

from config.platform.db.encoding import database_is_utf8
from config.platform.db.indexes import no_invalid_indexes
from config.platform.db.roles import service_owns_nothing


class ComposeConfig(AppConfig):
    """Composition: knows every app and is imported by none."""

    name = "config"

    def ready(self) -> None:
        register(database_is_utf8, Tags.database)
        register(no_invalid_indexes, Tags.database)
        register(service_owns_nothing, Tags.database, deploy=True)
        # By its name: this module is loaded before there are models.
        import_module("config.composition.collecting")
