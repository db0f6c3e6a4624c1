"""Connections that are over in time, from the first byte of a handshake on."""

import json
import subprocess
import sys
import time
from typing import Any
from urllib.parse import urlsplit

import pytest

from config.deadlines import connected
from config.local.folders import ROOT
from tests.llmproxy.rawserver import playing

WAYS = {"threads": [], "gevent": ["gevent.monkey", "--module"]}


@pytest.fixture(scope="module", params=WAYS)
def told(request: pytest.FixtureRequest) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", *WAYS[request.param], "tests.config.handshakes"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    assert result["gevent"] is (request.param == "gevent")
    return result


def test_a_handshake_that_trickles_is_cut_off_in_time(told: dict[str, Any]) -> None:
    assert told["trickles"] == {
        "_fetch": ["too_slow", True],
        "_post": ["timed out: True, sent: False", True],
    }


def test_only_who_proves_the_name_is_asked(told: dict[str, Any]) -> None:
    refused = ["SSLCertVerificationError", "unreachable", "timed out: False, sent: False"]
    assert told["its name"] == {"trusted": ["{}", "{}", "{}"], "not trusted": refused}
    assert told["another's"] == {"trusted": refused, "not trusted": refused}


def test_nobody_is_asked_once_the_time_is_over() -> None:
    with playing(lambda peer: None) as provider:
        address = urlsplit(provider.url)
        with (
            pytest.raises(TimeoutError),
            connected(address, silence=1.0, deadline=time.monotonic()),
        ):
            pass
    assert provider.connections == 0
