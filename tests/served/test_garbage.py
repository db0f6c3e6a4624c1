"""Garbage of requests: the collector's searches stop every answer of their process."""

from collections.abc import Callable
from pathlib import Path

from tests.served.conftest import Ground, SignIn
from tests.served.people import Person
from tests.served.service import running_service
from tests.waiting import eventually

REQUESTS = 10
# A connection that ends meanwhile, or a look of the watch, leaves some too, and not each time.
TRIES = 3
# Of a connection, which has a database connection of Django's of its own.
ONCE = 40
# Serializers and their fields name each other.
SERIALIZERS = 55


def test_requests_leave_hardly_any_garbage(
    ground: Ground, person: Person, sign_in: SignIn, tmp_path: Path
) -> None:
    found = tmp_path / "garbage"
    environ = {**ground.environ, "WEB_WORKERS": "1", "GARBAGE": str(found)}
    with running_service(ground.folder, environ, serving="tests.served.garbage_serving") as service:
        shell = sign_in(service, person)
        shell.keep_connections()

        def stream() -> None:
            with shell.stream("hello") as answer:
                assert list(answer)

        def collected() -> int:
            before = found.read_text().count("\n") if found.exists() else 0
            assert shell.get("/livez").status_code == 204
            eventually(lambda: found.exists() and found.read_text().count("\n") > before)
            return int(found.read_text().split()[-1])

        def garbage(of: Callable[[], object]) -> int:
            of()
            collected()
            for _ in range(REQUESTS):
                of()
            return collected()

        def leaves(of: Callable[[], object], *, at_most: int = ONCE) -> bool:
            return any(garbage(of) <= at_most for _ in range(TRIES))

        assert leaves(lambda: shell.get("/v1/license/status"))
        assert leaves(lambda: shell.complete("hello"))
        assert leaves(lambda: shell.complete("hello", temperature="hot"))
        assert leaves(stream)
        assert leaves(shell.refresh, at_most=ONCE + REQUESTS * SERIALIZERS)
