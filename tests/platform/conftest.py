from collections.abc import Iterator

import pytest

from tests.platform.written import Written, service_handler


@pytest.fixture
def written() -> Iterator[Written]:
    """Collects the log from here on."""
    handler, written = service_handler(), Written()
    before = handler.setStream(written)
    yield written
    handler.setStream(before)
