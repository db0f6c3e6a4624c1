"""The pages of the shell's channels and releases, which the pipeline publishes."""

from typing import Any

from django import forms
from django.conf import settings
from django.contrib import admin
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.db.models import Case, F, OuterRef, QuerySet, Subquery, Value, When
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path

from config.console.base import ConsoleAdmin
from config.console.lists.columns import moment
from config.console.navigation import page_of
from config.console.template_tags import chip
from releases.admin.channel_actions import CHANNEL_ACTIONS
from releases.delivery import cdn, purging
from releases.delivery.storage import pointer_path
from releases.manifests.evidence import verified
from releases.manifests.platforms import ARCHITECTURES
from releases.models import WHOLE, Publication, Purge, ShellChannel, ShellRelease
from releases.update_explanation import explain

SHOWN = 20
ARCHS = sorted({each for archs in ARCHITECTURES.values() for each in archs})


class ExplainForm(forms.Form):
    """The parameters of a shell's update check."""

    os = forms.ChoiceField(label="System", choices=[(each, each) for each in ARCHITECTURES])
    arch = forms.ChoiceField(
        label="Architecture",
        required=False,
        choices=[("", "any"), *((each, each) for each in ARCHS)],
    )
    current_version = forms.CharField(
        label="Version it has",
        required=False,
        max_length=120,
        help_text="For example, 1.2.3. Optional.",
    )
    version = forms.CharField(
        label="Version its client is pinned to",
        required=False,
        max_length=120,
        help_text="For example, 1.2.3. Optional.",
    )
    install_id = forms.CharField(
        required=False, max_length=128, strip=False, help_text="As the shell sends it. Optional."
    )


@admin.register(ShellChannel)
class ShellChannelAdmin(ConsoleAdmin):
    """A channel: its offer, whether the CDN serves that, and its history."""

    row_actions = CHANNEL_ACTIONS
    change_form_template = "admin/console/channel.html"
    list_display = ("name", "state", "version", "at_the_cdn", moment("halted_at", "halted since"))
    search_fields = ("name",)
    fields = ("name",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        ours = Publication.objects.filter(release__channel=OuterRef("pk")).order_by("-pk")
        live = ours.stored().values("release__version")[:1]
        in_time = When(
            failure=Purge.UNDER_WAY, tried_at__lt=F("asked_at") + Purge.MAY_TAKE, then=Value("")
        )
        failing = When(confirmed_at=None, attempts__gt=0, then=F("failure"))
        purges = Purge.objects.filter(channel=OuterRef("pk")).order_by("-pk")
        failure = purges.annotate(told=Case(in_time, failing, default=Value(""))).values("told")[:1]
        rows: Any = super().get_queryset(request)
        return rows.annotate(  # type: ignore[no-any-return]
            live_version=Subquery(live),
            purge_failure=Subquery(failure),
            share=Subquery(ours.served().values("share")[:1]),
            offered_version=Subquery(ours.served().values("release__version")[:1]),
        )

    @admin.display(description="state")
    def state(self, channel: Any) -> str:
        if channel.halted_at:
            return chip("stopped", "Halted")
        if channel.share is None:
            return chip("over", "No release")
        is_part = channel.share < WHOLE
        return (
            chip("running", f"Rolling out to {channel.share} %")
            if is_part
            else chip("well", "Offered")
        )

    @admin.display(description="to all shells")
    def version(self, channel: Any) -> str:
        return channel.live_version or "nothing"

    @admin.display(description="at the CDN")
    def at_the_cdn(self, channel: Any) -> str:
        shown = channel.purge_failure and cdn.is_purged()
        return chip("refused", f"Purge failed: {channel.purge_failure}") if shown else ""

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(self.explain)
        name = "releases_shellchannel_explain"
        return [path("<path:object_id>/explain/", view, name=name), *super().get_urls()]

    def explain(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Explains the response to an update check of this channel. It changes nothing, so it is a GET."""
        channel = self.get_object(request, unquote(object_id))
        if channel is None or not self.has_view_permission(request, channel):
            raise PermissionDenied
        form = ExplainForm(request.GET or None)
        explained = None
        if form.is_valid():
            given = form.cleaned_data
            explained = explain(
                channel=channel.pk,
                system=given["os"],
                arch=given["arch"] or None,
                current_version=given["current_version"] or None,
                version=given["version"] or None,
                install_id=given["install_id"] or None,
            )
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "title": "Explain",
            "row_name": str(channel),
            "back": page_of(channel),
            "form": form,
            "explained": explained,
        }
        return TemplateResponse(request, "admin/console/explain.html", context)

    def page_context(self, request: HttpRequest, row: ShellChannel) -> dict[str, Any]:
        publications = Publication.objects.of(row.pk).defer("signature", "release__manifest")
        return {
            "publications": publications.prefetch_related("purges")[:SHOWN],
            **_offers(row),
            "purge": purging.newest(row.pk) if cdn.is_purged() else None,
            "is_purged": cdn.is_purged(),
            "address": f"{settings.CDN_URL}/{pointer_path(row.pk)}",
        }


def _offers(channel: ShellChannel) -> dict[str, Any]:
    """The publications that it offers to all and to a share; for a halted channel once it is resumed."""
    ours = Publication.objects.of(channel.pk).defer("signature", "release__manifest")
    live = (ours.wanted() if channel.halted_at else ours.stored()).first()
    return {"live": live, "running": ours.rollout(), "halted": channel.halted_at}


@admin.register(ShellRelease)
class ShellReleaseAdmin(ConsoleAdmin):
    change_form_template = "admin/console/release.html"
    audit_target = "channel_id"
    list_display = ("version", "channel", "platform_names", moment("published_at"), "published_by")
    list_filter = ("channel",)
    list_select_related = ("channel",)
    date_hierarchy = "published_at"
    search_fields = ("version", "published_by", "=manifest_sha256")
    fields = ("version",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        # Only the page of a row reads the manifest.
        return super().get_queryset(request).defer("manifest")

    @admin.display(description="platforms")
    def platform_names(self, release: ShellRelease) -> str:
        return ", ".join(release.platforms)

    def page_context(self, request: HttpRequest, row: ShellRelease) -> dict[str, Any]:
        publications = Publication.objects.filter(release=row).defer("signature")
        publications = publications.select_related("release").prefetch_related("purges")
        return {
            "publications": publications[:SHOWN],
            "artifacts": verified(row),
            "document": bytes(row.manifest).decode("utf-8", "replace"),
            **_offers(row.channel),
            "is_purged": cdn.is_purged(),
        }
