from importlib import import_module

from django.contrib.admin.apps import AdminConfig


class ConsoleConfig(AdminConfig):
    """The operators' console: Django's admin with the project's site."""

    default_site = "config.console.site.ConsoleSite"

    def ready(self) -> None:
        super().ready()
        # The pages that cross apps come after every app's pages.
        import_module("config.console.pages")
