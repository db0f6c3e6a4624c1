from django.contrib.admin.apps import AdminConfig


class ConsoleConfig(AdminConfig):
    """The operators' console: Django's admin with the project's site."""

    default_site = "config.composition.site.ConsoleSite"
