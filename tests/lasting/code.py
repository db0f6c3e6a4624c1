"""Names that stand in calls: locks, salts, keys of sessions and of the cache, logs and metrics."""

import ast
from collections.abc import Iterator

from tests.lasting import reading
from tests.lasting.reading import Part, argument, calls, text


def locks() -> Iterator[str]:
    """Advisory locks of PostgreSQL, whose numbers are made of these."""
    for place, call in calls("lock_until_commit", "alone"):
        yield text(argument(call, "name", 0), place) or ""
    for place in reading.places(lambda node: isinstance(node, ast.Constant)):
        assert isinstance(place.node, ast.Constant)
        yield str(place.node.value).partition("lock(hashtext('")[2].partition("'")[0]


def job_locks() -> Iterator[str]:
    for place, call in calls("configure", "configure_task", "task", "periodic"):
        for name in ("lock", "queueing_lock"):
            yield text(argument(call, name), place) or ""


def derivations() -> Iterator[str]:
    """What keys are derived for, and salts of signatures and digests."""
    for place, call in calls("HKDF"):
        given = argument(call, "info")
        while isinstance(given, ast.BinOp):
            given = given.left
        yield text(given, place) or _first_part(given, place)
    for place, call in calls("salted_hmac", "Signer", "TimestampSigner"):
        yield text(argument(call, "salt") or argument(call, "key_salt", 0), place) or ""


def _first_part(given: ast.expr | None, place: reading.Place) -> str:
    for node in ast.walk(place.function) if place.function else ():
        if isinstance(node, ast.Assign) and given is not None and _is_of(node, given):
            value = node.value
            while isinstance(value, ast.BinOp):
                value = value.left
            return text(value, place) or ""
    return ""


def _is_of(assigned: ast.Assign, name: ast.expr) -> bool:
    return ast.unparse(assigned.targets[0]) == ast.unparse(name)


def session_keys() -> Iterator[str]:
    """What is kept in sessions of the console."""
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
    """What alerts on logs look for."""
    for place, call in calls("debug", "info", "warning", "error", "exception", "critical"):
        if ast.unparse(call.func).startswith(("log.", "logger.", "logging.")):
            yield text(argument(call, "msg", 0), place) or ""


def metrics() -> Iterator[Part]:
    """Each with its labels; the registry has only those that a process has counted."""
    for place, call in calls("Counter", "Gauge", "Histogram", "GaugeMetricFamily"):
        labels = argument(call, "labels", 99) or argument(call, "labelnames", 2)
        found = reading.value_of(labels, place.module) if labels is not None else ()
        name = text(argument(call, "name", 0), place)
        if name and isinstance(found, tuple | list | float | int):
            given = found if isinstance(found, tuple | list) else ()
            yield from ((name, str(label)) for label in given or ("",))
