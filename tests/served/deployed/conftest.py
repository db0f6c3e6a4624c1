"""A container engine and the service's image, once for all tests here."""

import os
from collections.abc import Iterator

import pytest

from tests.served.deployed.engine import Engine, running_engine
from tests.served.deployed.image import build_service
from tests.tools import Unready


@pytest.fixture(scope="package")
def engine() -> Iterator[Engine]:
    if os.geteuid() != 0:
        pytest.skip("NOT CHECKED: containers. Only root starts an engine for them.")
    try:
        with running_engine() as engine:
            yield engine
    except Unready as error:
        pytest.skip(f"NOT CHECKED: containers. No engine starts here: {error}")


@pytest.fixture(scope="package")
def image(engine: Engine) -> str:
    """The name of the service's image, as it is built."""
    return build_service(engine)
