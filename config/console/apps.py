from django.contrib.admin.apps import AdminConfig


class ConsoleConfig(AdminConfig):
    """The operators' console: Django's admin with a site of our own."""

    default_site = "config.console.site.ConsoleSite"
