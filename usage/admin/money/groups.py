"""Groups that usage is ranked and filtered by; each app declares those of its own rows."""

from typing import Any, NamedTuple

from django.db.models import Value

from accounts.models import Client, User
from config.platform.declarations import Declarations

# Of one group, as proposals of a form.
MOST_NAMES = 200


class Group(NamedTuple):
    """A group of ``usage.spending.sums.GROUPS`` whose rows have names."""

    by: str
    # The class of its rows.
    model: Any
    # Sums identify a row by its name, and not by its key.
    is_by_name: bool = False
    # Every row is offered as a filter, and not only the one that a link has chosen.
    is_offered: bool = True

    def rows(self) -> list[tuple[Any, str]]:
        """All rows by name: their key in sums, and the name."""
        known_by = "name" if self.is_by_name else "pk"
        return list(self.model.objects.order_by("name").values_list(known_by, "name"))


groups: Declarations[Group] = Declarations(lambda group: group.by)
groups.add(Group("client", Client), Group("person", User, is_offered=False))


def names(*by: str) -> dict[str, list[str]]:
    """Returns the first names of some groups, in one query."""
    found: dict[str, list[str]] = {each: [] for each in by}
    asked = [
        group.model.objects.annotate(by=Value(each))
        .order_by("name")
        .values_list("by", "name")[:MOST_NAMES]
        for each in by
        if (group := groups.get(each))
    ]
    for each, name in asked[0].union(*asked[1:], all=True).order_by("by", "name") if asked else ():
        found[each].append(name)
    return found


def names_of(by: str, keys: list[Any]) -> dict[Any, str]:
    """Returns the names of a group's rows; deleted ones by the beginning of their id."""
    group = groups.get(by)
    if group is None or group.is_by_name:
        return {key: str(key) for key in keys}
    rows = group.model.objects.in_bulk(keys)
    return {key: str(rows.get(key) or "") or str(key)[:8] for key in keys}
