"""The members that a provider gets beyond the schemas: as operators name them."""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from django.apps import AppConfig
from django.conf import settings
from django.core import checks
from django.db import ProgrammingError, transaction

from llmproxy.models import Provider
from llmproxy.requests.refused_members import why_refused

NAME = re.compile(r"[A-Za-z_][\w.-]{0,99}", re.ASCII)
ALL_IS_OLD = "all is taken for one more release. Name the members that pass instead, as top_k,chat_template_kwargs."


def members_text(provider: Provider) -> str:
    """An operator's words on the members of a provider."""
    return settings.LLM_MEMBERS if provider.name == Provider.DEFAULT else provider.members


def passes_all(provider: Provider) -> bool:
    return members_text(provider).strip() == Provider.ALL


def member_names(provider: Provider) -> frozenset[str]:
    """The names; none where all pass, or the known ones alone."""
    return names_in(members_text(provider))


def names_in(text: str) -> frozenset[str]:
    names = frozenset(filter(None, map(str.strip, text.split(","))))
    return names if names.isdisjoint({Provider.LISTED, Provider.ALL}) else frozenset()


def faults_of(text: str) -> Iterator[str]:
    """Finds the faults in the names of a provider."""
    names = [*filter(None, map(str.strip, text.split(",")))]
    for name in names:
        if name in (Provider.LISTED, Provider.ALL):
            if len(names) > 1:
                yield f"Use {name} alone, or the names of members."
        elif not NAME.fullmatch(name):
            yield "Give names of members, separated by commas."
        elif why := why_refused(name):
            yield f"{name} is never passed on. {why}"


def member_warnings() -> list[str]:
    """Warnings about providers that get all members, or are given names that never pass."""
    # No more columns: a database of before is checked too, as it is migrated.
    rows = Provider.objects.exclude(name=Provider.DEFAULT).order_by("name")
    told = [*settings_warnings()]
    for name, text in rows.values_list("name", "members"):
        told += _warnings(f"Extra request fields of {name}", text)
    return told


def settings_warnings() -> Iterator[str]:
    """The warnings about ``LLM_MEMBERS``."""
    return _warnings("LLM_MEMBERS", settings.LLM_MEMBERS)


def _warnings(where: str, text: str) -> Iterator[str]:
    old = [ALL_IS_OLD] if text.strip() == Provider.ALL else []
    return (f"{where}: {said}" for said in (*old, *faults_of(text)))


def members_are_named(
    app_configs: Sequence[AppConfig] | None, databases: Sequence[str] | None, **options: Any
) -> list[checks.CheckMessage]:
    """A system check of what :func:`member_warnings` tells; of the settings alone where no database is named."""
    told: Iterable[str] = settings_warnings()
    if databases:
        # The table of a database that is yet to be migrated may be none.
        with suppress(ProgrammingError), transaction.atomic():
            told = member_warnings()
    return [checks.Warning(each, id="llmproxy.W001") for each in told]


checks.register(members_are_named)
