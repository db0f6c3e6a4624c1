"""Names that stand in calls: locks, salts, keys of sessions and of the cache, logs and metrics."""

import ast
from collections.abc import Iterator

from tests.lasting import reading
from tests.lasting.reading import Part, argument, called, calls, text, texts


def locks() -> Iterator[str]:
    """Advisory locks of PostgreSQL, whose numbers are made of these."""
    for place, call in calls("lock_until_commit", "alone"):
        name = text(argument(call, "name", 0), place)
        assert name, f"{place.module}:{call.lineno}: name the lock where it is taken"
        yield name
    for place in reading.places(lambda node: isinstance(node, ast.Constant)):
        assert isinstance(place.node, ast.Constant)
        yield str(place.node.value).partition("lock(hashtext('")[2].partition("'")[0]


def job_locks() -> Iterator[str]:
    for place, call in calls("configure", "configure_task", "task", "periodic"):
        for name in ("lock", "queueing_lock"):
            yield text(argument(call, name), place) or ""


def derivations() -> Iterator[str]:
    """The purposes for which keys are derived, and salts of signatures and digests."""
    for place, call in calls("HKDF"):
        given = argument(call, "info")
        yield text(_beginning((given and reading.assigned(given, place)) or given), place) or ""
    for place, call in calls("salted_hmac", "Signer", "TimestampSigner"):
        yield text(argument(call, "salt") or argument(call, "key_salt", 0), place) or ""


def _beginning(given: ast.expr | None) -> ast.expr | None:
    """The first part of a text that is put together."""
    while isinstance(given, ast.BinOp):
        given = given.left
    return given


def session_keys() -> Iterator[str]:
    """The keys of the console's sessions."""
    for place in reading.places(lambda node: isinstance(node, ast.Subscript | ast.Call)):
        node = place.node
        if isinstance(node, ast.Subscript) and _is_session(node.value):
            yield text(node.slice, place) or ""
        elif isinstance(node, ast.Call) and _is_taken(node.func):
            yield text(argument(node, "", 0), place) or ""


def _is_taken(function: ast.expr) -> bool:
    if not isinstance(function, ast.Attribute) or function.attr not in {"get", "pop", "setdefault"}:
        return False
    return _is_session(function.value)


def _is_session(node: ast.expr) -> bool:
    if isinstance(node, ast.Call):
        return reading.called(node) == "get_decoded"
    return isinstance(node, ast.Attribute) and node.attr == "session"


def audit_members() -> Iterator[str]:
    """The members that rules and pages read from ``before`` and ``after`` of events."""
    for place in reading.places(lambda node: isinstance(node, ast.Subscript | ast.Call)):
        node = place.node
        if isinstance(node, ast.Subscript) and _is_of_event(node.value):
            yield text(node.slice, place) or ""
        elif isinstance(node, ast.Call) and _is_got(node.func):
            yield text(argument(node, "", 0), place) or ""


def _is_got(function: ast.expr) -> bool:
    return (
        isinstance(function, ast.Attribute)
        and function.attr == "get"
        and _is_of_event(function.value)
    )


def _is_of_event(node: ast.expr) -> bool:
    given = node.values[0] if isinstance(node, ast.BoolOp) else node
    return isinstance(given, ast.Attribute) and given.attr in {"before", "after"}


def cache_keys() -> Iterator[str]:
    for place, call in calls("add", "get", "set", "incr", "delete", "take", "give_back", "_count"):
        on = ast.unparse(call.func)
        if on.startswith(("cache.", "counters.")) or on == "_count":
            yield text(argument(call, "key", 0), place) or ""


def loggers() -> Iterator[str]:
    for place, call in calls("getLogger"):
        given = argument(call, "name", 0)
        is_own = isinstance(given, ast.Name) and given.id == "__name__"
        yield (place.module if is_own else text(given, place)) or ""


def log_events() -> Iterator[str]:
    """The events that alerts on logs look for."""
    for place, call in calls("debug", "info", "warning", "error", "exception", "critical"):
        if ast.unparse(call.func).startswith(("log.", "logger.", "logging.")):
            yield from texts(argument(call, "msg", 0), place)


def metrics() -> Iterator[Part]:
    """Each with its labels; the registry has only those that a process has counted."""
    for place, call in calls("Counter", "Gauge", "Histogram", "DatabaseGauge"):
        # Gauges of the database have their labels elsewhere than the library's metrics.
        named = ("labels", 3) if called(call) == "DatabaseGauge" else ("labelnames", 2)
        labels = argument(call, *named)
        found = reading.value_of(labels, place.module) if labels is not None else ()
        name = text(argument(call, "name", 0), place)
        if name and isinstance(found, tuple | list | float | int):
            given = found if isinstance(found, tuple | list) else ()
            yield from ((name, str(label)) for label in given or ("",))
