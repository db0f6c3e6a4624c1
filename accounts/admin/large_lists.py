"""Lists of millions of rows: ordered by time alone and searched only by index."""

from typing import Any, ClassVar
from uuid import UUID

from django.db.models import Q, QuerySet
from django.http import HttpRequest

from accounts.models import User
from config.console.base import ConsoleAdmin, uuid_in

# The number of people whose rows a part of an email finds; each may have thousands.
PEOPLE_LOOKED_FOR = 20
THEIRS = f"An email, or part of one (which at most {PEOPLE_LOOKED_FOR} people share)"


class LargeList(ConsoleAdmin):
    """A list of rows with a ``user``. No query here sorts, counts or scans the whole table."""

    # Repeated for mypy, which takes that of the first base class.
    fields: ClassVar[Any] = None
    sortable_by = ()
    # Shows the search box; get_search_results does the search.
    search_fields = ("user",)

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """The rows of a uuid as in every list; otherwise those of the people with this email, and of ``named``."""
        term = search_term.strip()
        if not term or uuid_in(term):
            return super().get_search_results(request, queryset, search_term)
        return queryset.filter(Q(user__in=_people_like(term)) | self.named(term)), False

    def named(self, term: str) -> Q:
        """Other rows that a word finds; the query needs an index."""
        return Q(pk__in=())


def _people_like(term: str) -> list[UUID]:
    """The person with this email, or else the first people whose email contains it."""
    exactly = User.objects.by_email(term)
    parts = User.objects.filter(email__icontains=term).order_by("email")[:PEOPLE_LOOKED_FOR]
    return list(exactly.values_list("pk", flat=True)) or list(parts.values_list("pk", flat=True))
