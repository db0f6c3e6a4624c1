"""The kinds of lasting names, and how the names of each are found in what runs."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime

from accounts.forwarding import APP
from accounts.models import Role
from accounts.sessions.access_tokens import TYPE
from config.composition.operation import nightly
from config.platform.acts import ACTS
from config.platform.attention import kinds
from config.platform.edge.ratelimits.cache import PROBE
from config.platform.edge.ratelimits.table import DEFAULTS
from config.platform.observability.logs import ALLOWED
from config.platform.problems.problem import Problem
from llmproxy.keys.key_text import PREFIX
from releases.delivery.storage import SIGNATURE_SUFFIX, pointer_path
from releases.micro_apps.publishing import bundle_path
from tests.generated_docs import problems
from tests.lasting import code, database, registries
from tests.lasting.reading import Part
from tests.tools.variables import NAMES
from usage.costs import Abandoned, Prices, Spent, as_json
from usage.models.failures import FailedAttempt, Failures, What

Names = Callable[[], Iterable[str | Part]]
# A kind, a name, and a name within it, which may be empty.
Name = tuple[str, str, str]


def _stored_paths() -> Iterator[str]:
    """The paths of published files, whose bytes never change."""
    pointer = pointer_path("{channel}")
    yield from (pointer, f"{pointer}{SIGNATURE_SUFFIX}", bundle_path("{slug}", "{version}"))


def _json() -> Iterator[Part]:
    """The members of rows' JSON, and of its lists the meaning of each place."""
    at = datetime.now(UTC)
    abandoned = Abandoned("one", Prices(), Spent(), is_reported=True, asked_at=at, abandoned_at=at)
    (members,) = json.loads(as_json([abandoned]) or "")
    yield from (("usage_usagerecord.abandoned", name) for name in members)
    for place, name in enumerate(Prices._fields):
        yield "usage_usagerecord.abandoned prices", f"{place}:{name}"
    attempt = FailedAttempt("one", "large", What.FAILED, 500, "", asked_at=at, ended_at=at)
    failures = json.loads(Failures((attempt,)).ending(Problem(), detail="").as_json() or "")
    for place, part in (
        ("", failures), (" attempts", failures["attempts"][0]), (" problem", failures["problem"]), (" what", What),
    ):  # fmt: skip
        yield from ((f"usage_usagerecord.failures{place}", str(name)) for name in part)


def _cache_keys() -> Iterator[str]:
    yield from (*code.cache_keys(), PROBE)


KINDS: Mapping[str, Names] = {
    # Names in the jobs of an earlier release.
    "task": registries.arguments,
    "queue": lambda: (each.queue for each in registries.tasks()),
    "periodic task": registries.periodic_tasks,
    "job lock": lambda: (*registries.locks_of_tasks(), *code.job_locks()),
    # Names in rows.
    "app label": registries.app_labels,
    "content type": registries.content_types,
    "operator role": lambda: Role.values,
    "choice": registries.choices,
    "migration": registries.migrations,
    "audit action": lambda: (each.action for each in ACTS),
    "audit member": code.audit_members,
    "JSON": _json,
    "night job": lambda: (each.name for each in nightly.JOBS),
    "attention": lambda: (each.name for each in kinds),
    # Names in the database that the processes of two releases share.
    "table": database.tables,
    "function": database.functions,
    "trigger": database.triggers,
    "enumeration": database.enumerations,
    "setting of a transaction": database.settings,
    "advisory lock": code.locks,
    # Names that are needed to decrypt or verify stored data.
    "sealed column": registries.sealed_columns,
    "derived key": lambda: (*code.derivations(), *registries.session_salts()),
    "password hash": registries.hashers,
    "token": lambda: (TYPE, PREFIX),
    # Names that browsers keep.
    "cookie": registries.cookies,
    "session key": lambda: (*registries.sessions(), *code.session_keys()),
    "session value": registries.session_values,
    # Names in mails, bookmarks, programs and other servers.
    "address": registries.addresses,
    "problem": lambda: (each.code for each in problems()),
    "stored path": _stored_paths,
    "cache key": _cache_keys,
    "rate limit": lambda: DEFAULTS,
    # Names used by operators, scripts and monitors.
    "entry point": registries.entry_points,
    "command": registries.commands,
    "variable": lambda: NAMES,
    "logger": code.loggers,
    "log event": code.log_events,
    "log member": lambda: ALLOWED,
    "metric": code.metrics,
    "syslog program": lambda: (APP,),
}


def names() -> set[Name]:
    """Every name that the code of now writes or understands; each alone and with each of its parts."""
    found = set()
    for kind, collect in KINDS.items():
        for each in collect():
            name, part = each if isinstance(each, tuple) else (each, "")
            # One that only a run knows is empty.
            if name:
                found |= {(kind, name, ""), (kind, name, part)}
    return found
