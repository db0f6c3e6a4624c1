"""A pytest plugin: the environment of a test run and its servers, before Django reads its settings.

Where DATABASE_URL is set already, as `make test` does, what is set is taken as it is.
"""

import os
from contextlib import ExitStack

import pytest

from tests.tools import Unready
from tests.tools.throwaway import throwaway_environment
from tests.tools.variables import outside


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Sets every variable of the service; what is started here ends with the run."""
    if "DATABASE_URL" in os.environ:
        return
    servers = ExitStack()
    early_config.add_cleanup(servers.close)
    try:
        environ = {**outside(os.environ), **servers.enter_context(throwaway_environment())}
    except Unready as error:
        raise pytest.UsageError(str(error)) from None
    os.environ.clear()
    os.environ.update(environ)
