"""System checks of the database, which ``check --database default`` and ``migrate`` run."""

from collections.abc import Callable, Iterable, Sequence

from django.core.checks import CheckMessage


def of_each_database(
    find: Callable[[str], Iterable[CheckMessage]],
) -> Callable[..., list[CheckMessage]]:
    """Makes a system check of each named database of a function of its alias."""

    def check(
        app_configs: object, databases: Sequence[str] | None, **options: object
    ) -> list[CheckMessage]:
        return [message for alias in databases or () for message in find(alias)]

    check.__name__ = find.__name__
    return check
