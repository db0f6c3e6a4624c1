"""A burst of streams on a busy machine: what was made and paid reaches its caller, and the ledger is exact."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from pytest_django.plugin import DjangoDbBlocker

from tests.bench.burst import burst
from tests.platform.db.own_postgres import OwnPostgres, own_postgres
from tests.served.conftest import Ground
from tests.served.database import Database
from tests.served.service import Service, manage, running_service
from tests.tools.folders import ROOT
from tests.tools.postgres import NAME

pytestmark = pytest.mark.full

STREAMS, LOOPS = 333, 6
FROZEN_SECONDS = 5.0


@dataclass(frozen=True)
class Crowded:
    """A service with a database server of its own, and the tokens of those who call."""

    server: OwnPostgres
    database: Database
    service: Service
    tokens: list[str]

    @property
    def log(self) -> Path:
        return self.service.child.program.log

    def freeze(self) -> None:
        with self.server.frozen():
            time.sleep(FROZEN_SECONDS)


@pytest.fixture(scope="module")
def crowded(
    ground: Ground, django_db_blocker: DjangoDbBlocker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Crowded]:
    folder = tmp_path_factory.mktemp("crowded")
    with own_postgres() as server:
        own = {"DATABASE_URL": server.url, "DATABASE_OWNER_URL": server.url}
        with running_service(folder, {**ground.environ, **own}) as service:
            manage(service.environ, "migrate", "--no-input")
            manage(service.environ, "seed_demo", "--output", str(folder / "demo.json"))
            database = Database(NAME, django_db_blocker.unblock, server=server.url)
            yield Crowded(server, database, service, _tokens(service))


def _tokens(service: Service) -> list[str]:
    """A token of each of so many people who have never called."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.served.signing", str(STREAMS)],
        cwd=ROOT,
        env=dict(service.environ),
        capture_output=True,
        text=True,
        check=True,
    )
    tokens: list[str] = json.loads(done.stdout)
    return tokens


@pytest.mark.parametrize("is_frozen", [False, True], ids=["busy", "with a frozen database"])
def test_no_stream_that_has_delivered_its_answer_ends_without_its_end(
    crowded: Crowded, is_frozen: bool
) -> None:
    freeze: Callable[[], None] | None = crowded.freeze if is_frozen else None
    seen = burst(
        port=crowded.service.port,
        log=crowded.log,
        database=crowded.database,
        tokens=crowded.tokens,
        streams=STREAMS,
        loops=LOOPS,
        freeze=freeze,
    )
    assert (seen.lost, seen.off, seen.unraisable, seen.seen.unanswered) == (0, 0, 0, 0), seen
    assert seen.seen.done >= STREAMS, seen
