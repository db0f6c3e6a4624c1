"""The bench's replica: a copy that goes on following, and may only be read."""

import os
from pathlib import Path

import psycopg
import pytest

from tests.bench.durable import durable_database
from tests.bench.standby import standby
from tests.waiting import eventually


# Nothing beyond packages is needed: a copy of a server takes long, and only the bench needs one.
@pytest.mark.wire
def test_a_standby_has_what_was_written_after_it_was_copied(tmp_path: Path) -> None:
    with durable_database(tmp_path):
        url = os.environ["DATABASE_URL"]
        with (
            standby(tmp_path, url) as copy,
            psycopg.connect(url, autocommit=True) as primary,
            psycopg.connect(copy.url(url), autocommit=True) as there,
        ):
            primary.execute("CREATE TABLE written (number int)")
            eventually(lambda: there.execute("SELECT to_regclass('written')").fetchone() != (None,))
            with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
                there.execute("INSERT INTO written VALUES (1)")
        assert not (tmp_path / "standby").exists()
