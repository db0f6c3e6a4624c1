"""Connections that are over in time, from the first byte of a handshake on."""

import json
import ssl
import subprocess
import sys
from typing import Any

import pytest

from config.platform.http.client import Client
from tests.tools.folders import ROOT

WAYS = {"threads": [], "gevent": ["gevent.monkey", "--module"]}


@pytest.fixture(scope="module", params=WAYS)
def told(request: pytest.FixtureRequest) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", *WAYS[request.param], "tests.platform.http.http_handshakes"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=270,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    assert result["gevent"] is (request.param == "gevent")
    return result


def test_a_trickling_handshake_ends_in_time(told: dict[str, Any]) -> None:
    assert told["trickles"] == {
        "_fetch": ["too_slow", True],
        "_post": ["too_slow, sent: False", True],
    }


def test_a_server_without_a_valid_certificate_gets_no_request(told: dict[str, Any]) -> None:
    refused = ["unreachable", "unreachable, sent: False"]
    assert told["its name"] == {"trusted": ["{}", "{}"], "not trusted": refused}
    assert told["another's"] == {"trusted": refused, "not trusted": refused}


def test_replaced_authorities_are_trusted_from_the_next_exchange_on(told: dict[str, Any]) -> None:
    assert told["replaced"] == ["unreachable", "{}"]


def test_authorities_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    Client(kept=1).close()
    monkeypatch.delattr(ssl, "create_default_context")
    Client(kept=1).close()
