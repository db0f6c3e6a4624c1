"""Lists that operators download as a file, with the filters they have chosen."""

from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from itertools import chain
from typing import Any, ClassVar

from django.contrib.admin.options import IncorrectLookupParameters
from django.core.exceptions import BadRequest, PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, StreamingHttpResponse
from django.urls import URLPattern, path
from django.utils import timezone

from accounts.audit import Actor
from accounts.people.operators import actor_of
from config.console.base import ConsoleAdmin
from config.platform.db.replica import look

# Content type by the ending of the file's name.
FORMATS: Mapping[str, str] = {
    "csv": "text/csv; charset=utf-8",
    "ndjson": "application/x-ndjson",
}
# Of an address, in the audit log.
MOST_NOTED = 100


class ExportedList(ConsoleAdmin):
    """A list with the links to its files."""

    # Repeated for mypy, which takes that of the first base class.
    fields: ClassVar[Any] = None
    change_list_template = "admin/console/exported.html"
    # The beginning of a file's name.
    export_name: ClassVar[str]

    def export(self, rows: QuerySet[Any], *, ending: str) -> Iterator[bytes]:
        """The bytes of a file of these rows."""
        raise NotImplementedError

    def note_export(self, *, by: Actor, now: datetime, target: str, after: dict[str, Any]) -> None:
        """Writes the event of an export: its format, and its filters."""
        raise NotImplementedError

    def may_export(self, request: HttpRequest) -> bool:
        return request.user.has_perm(f"{self.opts.label_lower}_export")

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> Any:
        shown = {"may_export": self.may_export(request), **(extra_context or {})}
        return super().changelist_view(request, shown)

    def get_urls(self) -> list[URLPattern]:
        label = f"{self.opts.app_label}_{self.opts.model_name}_export"
        exports = [
            path(
                f"export.{ending}",
                self.admin_site.admin_view(self._file(ending)),
                name=f"{label}_{ending}",
            )
            for ending in FORMATS
        ]
        return [*exports, *super().get_urls()]

    def _file(self, ending: str) -> Any:
        def view(request: HttpRequest) -> StreamingHttpResponse:
            """Exports all rows of the filtered list as a file."""
            if not self.may_export(request):
                raise PermissionDenied
            try:
                rows = self.get_changelist_instance(request).get_queryset(request)
            except IncorrectLookupParameters:
                raise BadRequest from None
            now = timezone.now()
            seen, chosen = look(now=now), noted(request)
            self.note_export(by=actor_of(request), now=now, target=ending, after=chosen)
            content = self.export(rows.using(seen.alias), ending=ending)
            return file_response(content, name=self.export_name, ending=ending, now=seen.at)

        return view


def noted(request: HttpRequest) -> dict[str, Any]:
    """The filters of an export, for its event."""
    return {name: value for name, value in request.GET.items() if len(value) <= MOST_NOTED}


def file_response(
    content: Iterable[bytes], *, name: str, ending: str, now: datetime
) -> StreamingHttpResponse:
    """A file to download, with the time in its name up to which it knows everything.

    A CSV begins with a byte order mark: without it Excel reads the bytes in the computer's own encoding.
    """
    marked = chain([BOM_UTF8], content) if ending == "csv" else content
    response = StreamingHttpResponse(marked, content_type=FORMATS[ending])
    filename = f"{name}-{now:%Y%m%dT%H%M%S}.{ending}"
    response["Content-Disposition"] = f'attachment; filename="{filename}"'
    response["Cache-Control"] = "no-store"
    return response
