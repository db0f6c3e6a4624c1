from django.core.checks import Tags, register

from config.platform import declarations
from config.platform.db.encoding import database_is_utf8
from config.platform.db.indexes import no_invalid_indexes
from config.platform.db.roles import service_owns_nothing


class ComposeConfig(declarations.DeclaringApp):
    """Composition: knows every app and is imported by none."""

    name = "config"
    declaring = ("composition.collecting",)
    metrics = ("platform.observability.process_metrics", "composition.operation.metrics")

    def ready(self) -> None:
        register(database_is_utf8, Tags.database)
        register(no_invalid_indexes, Tags.database)
        register(service_owns_nothing, Tags.database, deploy=True)
        super().ready()
