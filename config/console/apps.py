from importlib import import_module

from django.contrib.admin.apps import AdminConfig


class ConsoleConfig(AdminConfig):
    """The operators' console: Django's admin with a site of our own."""

    default_site = "config.console.site.ConsoleSite"

    def ready(self) -> None:
        super().ready()
        # After every app's own pages: those that know more than one app.
        import_module("config.console.pages")
