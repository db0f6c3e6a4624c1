"""Services that are started once for all tests here: one for most of them, and one for each other configuration."""

import json
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import sleep

import pytest
from pytest_django.plugin import DjangoDbBlocker

from tests.served.database import Database, Unblock, new_database
from tests.served.people import Person, add_person
from tests.served.service import Service, manage, running_service
from tests.served.shell import Shell
from tests.standins.provider_process import Provider, running_provider
from tests.tools.postgres import SPLIT
from tests.waiting import eventually

SignIn = Callable[..., Shell]
NEARLY_MIDNIGHT = timedelta(seconds=20)
# Some tests have the provider refuse the credential.
EXPECTED = "provider_refuses_credential"


@dataclass(frozen=True, slots=True)
class Seeds:
    """A database that was seeded once; each service that needs one of its own has a copy."""

    template: Database
    unblock: Unblock
    demo: Path

    def copy(self) -> AbstractContextManager[Database]:
        return new_database(self.unblock, like=self.template.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """The parts shared by all services: database, provider, folder, and their variables."""

    database: Database
    provider: Provider
    folder: Path
    environ: dict[str, str]


def unexpected(errors: list[str]) -> list[str]:
    """The lines that no test had a service write on purpose."""
    return [line for line in errors if EXPECTED not in line]


@pytest.fixture(autouse=True)
def _of_one_day() -> None:
    """Services count usage by the day (UTC) and keep the true time: a test that would last into the next day waits."""
    now = datetime.now(UTC)
    left = datetime.combine(now.date() + timedelta(days=1), datetime.min.time(), UTC) - now
    if left < NEARLY_MIDNIGHT:
        sleep(left.total_seconds())


@pytest.fixture(scope="session")
def seeds(
    django_db_blocker: DjangoDbBlocker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Seeds]:
    demo = tmp_path_factory.mktemp("seeds") / "demo.json"
    with new_database(django_db_blocker.unblock, like=SPLIT) as template:
        urls = {"DATABASE_URL": template.service_url, "DATABASE_OWNER_URL": template.url}
        environ = {**os.environ, **urls}
        manage(environ, "seed_demo", "--output", str(demo))
        yield Seeds(template, django_db_blocker.unblock, demo)


@pytest.fixture(scope="session")
def ground(seeds: Seeds, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    folder = tmp_path_factory.mktemp("served")
    with (
        seeds.copy() as database,
        running_provider(api_key=os.environ["LLM_API_KEY"]) as provider,
    ):
        environ = {
            "DATABASE_URL": database.service_url,
            "DATABASE_OWNER_URL": database.url,
            "LLM_BASE_URL": provider.base_url,
            "EMAIL_URL": (folder / "mail").as_uri(),
        }
        yield Ground(database=database, provider=provider, folder=folder, environ=environ)


@pytest.fixture(scope="session")
def database(ground: Ground) -> Database:
    return ground.database


@pytest.fixture
def provider(ground: Ground) -> Provider:
    """The stand-in behind all services, with its counters at zero."""
    ground.provider.reset()
    return ground.provider


@pytest.fixture(scope="session")
def demo(seeds: Seeds) -> dict[str, str]:
    """Returns the people who can sign in to a seeded service; see `config/composition/operation/demo.py`."""
    demo: dict[str, str] = json.loads(seeds.demo.read_text())
    return demo


@pytest.fixture(scope="session")
def service(ground: Ground) -> Iterator[Service]:
    """As it is by default, but for limits."""
    with running_service(ground.folder, ground.environ) as service:
        yield service
        # No test of the session may have caused an unexpected error.
        assert unexpected(service.errors()) == []


@pytest.fixture(scope="session")
def brisk(ground: Ground) -> Iterator[Service]:
    """With short silences and little patience."""
    short = {
        "LLM_KEEPALIVE_SECONDS": "0.2",
        "LLM_READ_TIMEOUT": "2",
        "LLM_MAX_SECONDS": "4",
        "RATE_LIMITS": "llm.user=5/2s",
    }
    with running_service(ground.folder, {**ground.environ, **short}) as service:
        yield service
        assert unexpected(service.errors()) == []


@pytest.fixture(scope="session")
def filling(ground: Ground) -> Iterator[Service]:
    """With short silences and as much patience as usual."""
    with running_service(
        ground.folder, {**ground.environ, "LLM_KEEPALIVE_SECONDS": "0.2"}
    ) as service:
        yield service
        assert unexpected(service.errors()) == []


@pytest.fixture
def person(database: Database) -> Person:
    """Somebody without caps."""
    return add_person(database)


@pytest.fixture
def sign_in() -> SignIn:
    """A shell in which a person has signed in: ``sign_in(service, person)``."""

    def signed_in(service: Service, person: Person, **options: str) -> Shell:
        shell = Shell(service.url, **options)

        def is_in() -> bool:
            response = shell.login(person.email, person.password)
            assert response.status_code in {200, 503}, response.text
            return response.status_code == 200

        # A machine that stood still has a statement given up, and the service says to come again.
        eventually(is_in)
        return shell

    return signed_in


@pytest.fixture
def shell(service: Service, person: Person, sign_in: SignIn) -> Shell:
    """The person, signed in to the usual service."""
    return sign_in(service, person)
