"""Who has more connections than another."""

import json
import subprocess
import sys

from config.sharing import Shares
from tests.tools.folders import ROOT


def test_who_has_more_than_another_is_ahead() -> None:
    shares = Shares(4)
    one, other = shares.take(), shares.take()
    assert [shares.is_ahead(each) for each in (one, other)] == [False, False]
    shares.say(one, 3)
    shares.say(other, 2)
    assert [shares.is_ahead(each) for each in (one, other)] == [True, False]
    shares.say(one, 2)
    assert [shares.is_ahead(each) for each in (one, other)] == [False, False]


def test_nobody_waits_for_one_that_takes_no_more() -> None:
    shares = Shares(2)
    one, other = shares.take(), shares.take()
    shares.say(one, 3)
    shares.leave(other)
    assert not shares.is_ahead(one)
    # Its last clients leave, and it is not back for that.
    shares.say(other, 0)
    assert not shares.is_ahead(one)


def test_a_place_is_free_when_its_worker_has_ended_and_not_before() -> None:
    shares = Shares(2)
    one, other = shares.take(), shares.take()
    assert one != other
    shares.leave(one)
    assert shares.take() is None
    shares.give_back(one)
    assert shares.take() == one


def test_who_has_no_place_shares_with_nobody() -> None:
    shares = Shares(1)
    one, none = shares.take(), shares.take()
    assert none is None
    shares.say(none, 5)
    shares.say(one, 1)
    assert [shares.is_ahead(each) for each in (one, none)] == [False, False]
    shares.leave(none)
    shares.give_back(none)
    assert shares.take() is None


def test_one_that_is_ahead_leaves_connections_to_another_and_does_not_wait_for_one_that_is_stuck() -> (
    None
):
    done = subprocess.run(
        [sys.executable, "-m", "tests.config.accepting_workers"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    told = json.loads(done.stdout)
    assert told["waits"]["ahead"] + told["waits"]["other"] == 200
    # Some, where the other one is not given a core for a moment.
    assert told["waits"]["ahead"] <= 60
    assert told["stuck"]["ahead"] == 200
    # Less and less often; each of them would be 200.
    assert 1 <= told["stuck"]["pauses"] <= 60
