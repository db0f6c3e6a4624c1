"""The operators' console."""

from django.contrib.admin import AdminSite


class ConsoleSite(AdminSite):
    site_header = "Shell backend"
    site_title = "Shell backend"
    index_title = "Console"
