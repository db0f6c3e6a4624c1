"""Lists of millions of rows: in the order of time alone, and searched only by index."""

from typing import Any, ClassVar
from uuid import UUID

from django.db.models import Q, QuerySet
from django.http import HttpRequest

from accounts.models import User
from config.console.base import ConsoleAdmin, uuid_in

# The most people whose rows a part of an email finds; each may have thousands.
PEOPLE_LOOKED_FOR = 20
THEIRS = f"An email, or a part of it (of {PEOPLE_LOOKED_FOR} people at most)"


class LargeList(ConsoleAdmin):
    """A list of what belongs to people (``user``). Nothing here sorts, counts or scans the whole table."""

    # Repeated for mypy, which takes the first base class's.
    fields: ClassVar[Any] = None
    sortable_by = ()
    # Only so that there is a place to write in; see get_search_results.
    search_fields = ("user",)

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """By a uuid as in every list; by a word as the rows of the people it fits, or what :meth:`named` says."""
        term = search_term.strip()
        if not term or uuid_in(term):
            return super().get_search_results(request, queryset, search_term)
        return queryset.filter(Q(user__in=people_like(term)) | self.named(term)), False

    def named(self, term: str) -> Q:
        """Other rows that are found by a word; by an index, or every search looks through all of them."""
        return Q(pk__in=())


def people_like(term: str) -> list[UUID]:
    """The person of this email, or else the first people whose email contains it; their rows are found by index."""
    exactly = User.objects.filter(email=term)
    parts = User.objects.filter(email__icontains=term).order_by("email")[:PEOPLE_LOOKED_FOR]
    return list(exactly.values_list("pk", flat=True)) or list(parts.values_list("pk", flat=True))
