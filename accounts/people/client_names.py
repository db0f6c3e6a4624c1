"""The form by which names of clients are compared: two names of one form look alike, and belong to one client.

Letter case, blanks and normal form are no difference, nor is what cannot be seen. Names stay as they were written.
"""

from collections import defaultdict

from django.core import checks
from django.db import ProgrammingError, transaction
from django.db.models import Count, Func, QuerySet, TextField, Value
from django.db.models.expressions import Combinable
from django.db.models.functions import Cast, Trim, Upper
from django.db.models.lookups import Exact

from accounts.models import Client
from config.platform.db.checks import of_each_database

# PostgreSQL's own class has no no-break spaces, and no letters that are blank.
BLANKS = (
    "[\t-\r\x1c-\x20\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u2800\u3000\u3164\uffa0]+"
)
# Marks of direction, joiners and blanks without a width.
UNSEEN = (
    "[\xad\u034f\u061c\u180b-\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff]+"
)
MOST_TOLD = 100


def alike(name: str) -> QuerySet[Client]:
    """The clients whose names have the form of this one."""
    return Client.objects.filter(Exact(_form("name"), _form(Value(name))))


@of_each_database
def clients_look_alike(alias: str) -> list[checks.CheckMessage]:
    """Warns of clients whose names look alike, from before or from a process of the release before."""
    return [_warning(clients) for clients in _groups(alias)]


def _groups(alias: str) -> list[list[Client]]:
    clients = Client.objects.using(alias).annotate(form=_form("name")).order_by()
    several = clients.values_list("form", flat=True).annotate(number=Count("pk"))
    forms = several.filter(number__gt=1)[:MOST_TOLD]
    found: defaultdict[str, list[Client]] = defaultdict(list)
    try:
        with transaction.atomic(using=alias):
            for each in clients.filter(form__in=list(forms)).order_by("created_at", "pk"):
                found[each.form].append(each)
    except ProgrammingError:
        # A new database has no table.
        return []
    return list(found.values())


def _warning(clients: list[Client]) -> checks.CheckMessage:
    named = ", ".join(f"{each.name} ({each.pk})" for each in clients)
    return checks.Warning(
        f"Several clients have names that look alike: {named}.",
        hint="Rename all but one; until then, imports and filters may need an id.",
        id="accounts.W002",
    )


def _form(text: str | Combinable) -> Combinable:
    seen = _without(Cast(text, TextField()), UNSEEN, "")
    composed = Func(
        Trim(_without(seen, BLANKS, " ")), function="normalize", output_field=TextField()
    )
    return Upper(composed)


def _without(text: Combinable, signs: str, instead: str) -> Combinable:
    given = [Value(each, TextField()) for each in (signs, instead, "g")]
    return Func(text, *given, function="regexp_replace", output_field=TextField())


checks.register(clients_look_alike, checks.Tags.database)
