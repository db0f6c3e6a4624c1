"""What has been published, to look at. Publishing is the pipeline's call."""

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from accounts.columns import moment
from accounts.console import ConsoleAdmin
from releases.models import Publication, ShellChannel, ShellRelease

SHOWN = 20


@admin.register(ShellChannel)
class ShellChannelAdmin(ConsoleAdmin):
    """A channel and its history. The first row of it that storage has is what shells are served."""

    change_form_template = "admin/console/channel.html"
    list_display = ("name", moment("leased_until", "publish under way until"))
    search_fields = ("name",)
    fields = (*list_display, "fence")

    def beside(self, request: HttpRequest, row: ShellChannel) -> dict[str, Any]:
        publications = Publication.objects.of(row.pk).defer("signature", "release__manifest")
        return {"publications": publications[:SHOWN]}


@admin.register(ShellRelease)
class ShellReleaseAdmin(ConsoleAdmin):
    change_form_template = "admin/console/release.html"
    list_display = (
        "version",
        "channel",
        "platform_names",
        moment("published_at"),
        "published_by",
    )
    list_filter = ("channel",)
    list_select_related = ("channel",)
    date_hierarchy = "published_at"
    search_fields = ("version", "published_by", "=manifest_sha256")
    fields = (*list_display, "manifest_sha256", "document")
    readonly_fields = ("platform_names", "document")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        # The documents are read on a row's own page only.
        return super().get_queryset(request).defer("manifest")

    @admin.display(description="platforms")
    def platform_names(self, release: ShellRelease) -> str:
        return ", ".join(release.platforms)

    @admin.display(description="manifest")
    def document(self, release: ShellRelease) -> str:
        return bytes(release.manifest).decode("utf-8", "replace")

    def subject(self, row: ShellRelease) -> object:
        return row.channel_id

    def beside(self, request: HttpRequest, row: ShellRelease) -> dict[str, Any]:
        publications = Publication.objects.filter(release=row).defer("signature")
        return {"publications": publications[:SHOWN], "artifacts": row.artifacts.all()}
