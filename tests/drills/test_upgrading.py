"""Nobody notices an upgrade from the release before, a restart or a way back, and nothing is lost by it."""

import os
from pathlib import Path

import pytest
from pytest_django.plugin import DjangoDbBlocker

from tests.drills.history import Absent
from tests.drills.upgrading import AUDIT, EVENTS, drill, losses, upgrade

# On a quiet machine it takes a minute.
pytestmark = [pytest.mark.full, pytest.mark.timeout(1800)]

# `make upgrade-drill` has more of them.
PEOPLE, INSTANCES, RESTARTS = (
    int(os.environ.get(name, least))
    for name, least in (("PEOPLE", "3"), ("INSTANCES", "1"), ("RESTARTS", "2"))
)
SIDE_BY_SIDE_SECONDS = float(os.environ.get("SIDE_BY_SIDE_SECONDS", "0"))


def test_an_upgrade_and_the_way_back_lose_nothing(
    django_db_blocker: DjangoDbBlocker, tmp_path: Path
) -> None:
    try:
        with upgrade(django_db_blocker.unblock, tmp_path, people=PEOPLE, say=print) as stage:
            events, audit = stage.one(EVENTS), stage.one(AUDIT)
            drill(
                stage,
                people=PEOPLE,
                instances=INSTANCES,
                restarts=RESTARTS,
                side_by_side=SIDE_BY_SIDE_SECONDS,
            )
            lost = losses(stage, events, audit)
            for phase, seconds in stage.account.slowest.items():
                print(f"{seconds:6.2f} s at most: {phase}")
            print(
                f"{stage.account.done}, {len(stage.account.told)} streams were told that they end"
            )
            assert lost == {}
            assert stage.account.calls > 10
    except Absent as absent:
        pytest.skip(str(absent))
