"""What has been published, to look at. Publishing is the pipeline's call."""

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from accounts.console import ConsoleAdmin, moment
from releases.models import ShellRelease


@admin.register(ShellRelease)
class ShellReleaseAdmin(ConsoleAdmin):
    list_display = (
        "version",
        "channel",
        moment("published_at"),
        "published_by",
        moment("stored_at"),
    )
    list_filter = ("channel",)
    date_hierarchy = "published_at"
    search_fields = ("version", "published_by", "=manifest_sha256")
    fields = (*list_display, "manifest_sha256", "document")
    readonly_fields = ("document",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        # The documents are read on a row's own page only.
        return super().get_queryset(request).defer("manifest")

    @admin.display(description="manifest")
    def document(self, release: ShellRelease) -> str:
        return bytes(release.manifest).decode("utf-8", "replace")
