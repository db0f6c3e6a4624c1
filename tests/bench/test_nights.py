"""Nights are measured on what they really remove."""

from contextlib import nullcontext
from datetime import UTC, datetime

import pytest
from django.db import connection

from telemetry.models import Event
from tests.bench.nights import JOBS
from tests.served.database import Database

TELEMETRY = next(job for job in JOBS if job.name == "prune_telemetry")
OLD = 20_000


@pytest.mark.full
@pytest.mark.django_db(transaction=True)
def test_a_night_looks_at_what_it_removes_and_the_first_time_is_taken_back() -> None:
    with connection.cursor() as cursor:
        cursor.execute(TELEMETRY.ageing)
    assert TELEMETRY._pages() > OLD
    assert Event.objects.count() == OLD
    assert TELEMETRY.work(datetime.now(UTC)) == OLD
    nothing = TELEMETRY._pages()
    taken = TELEMETRY.taken(Database(connection.settings_dict["NAME"], nullcontext))
    assert taken.seconds > 0
    assert taken.pages > OLD > nothing
    assert not Event.objects.exists()
