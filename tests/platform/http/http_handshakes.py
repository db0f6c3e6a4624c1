"""Says what becomes of connections over TLS, as a line of JSON. Run as it is, or by ``gevent.monkey``."""

import json
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from ipaddress import ip_address
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from cryptography import x509
from gevent.monkey import is_module_patched

from accounts.connections import exchange
from config.platform.http.errors import ExchangeError
from releases.delivery.fetching import FetchRefused, fetch
from tests.standins.raw_server import Authority, Peer, Provider, playing

# Of a question, and of the test, in which a byte comes ever so often.
SECONDS, GENEROUS, PAUSE = 0.5, 120.0, 0.05
# A handshake's first record, and in it the beginning of a server's first word: of as many bytes as there can be.
FIRST_WORD = b"\x16\x03\x03\x3f\xff\x02\x00\x3f\xfb\x03\x03"


def _trickles(peer: Peer) -> None:
    peer.send(FIRST_WORD)
    end = time.monotonic() + GENEROUS
    with suppress(OSError):
        while time.monotonic() < end:
            time.sleep(PAUSE)
            peer.send(b"\0")


def _answers(peer: Peer) -> None:
    # A client that does not trust the server ends the connection by an alert of TLS.
    with suppress(OSError):
        if peer.sock.recv(1):
            peer.answer(b"{}")


def _fetch(url: str, seconds: float) -> str:
    with fetch(url, limit=1000, deadline=time.monotonic() + seconds) as fetched:
        return b"".join(fetched).decode()


def _post(url: str, seconds: float) -> str:
    exchange.MOST_SECONDS = seconds
    answer = exchange.post(url, {}, "a=b")
    return json.dumps(answer.members())


def _outcome(ask: Callable[[str, float], str], url: str, seconds: float) -> Any:
    """Returns the outcome, and whether it came in time."""
    began = time.monotonic()
    try:
        said = ask(url, seconds)
    except FetchRefused as refused:
        said = refused.code
    except ExchangeError as none:
        said = f"{none.reason}, sent: {none.sent}"
    return [said, time.monotonic() - began < GENEROUS / 2]


@contextmanager
def _trusting(bundle: Path | None) -> Iterator[None]:
    os.environ["SSL_CERT_FILE"] = str(bundle or os.devnull)
    yield
    del os.environ["SSL_CERT_FILE"]


def _told(folder: Path) -> dict[str, Any]:
    authority = Authority(folder)
    told: dict[str, Any] = {"gevent": socket.socket.__module__.startswith("gevent")}
    assert told["gevent"] == is_module_patched("ssl")
    with playing(_trickles) as provider:
        url = provider.url.replace("http:", "https:")
        told["trickles"] = {each.__name__: _outcome(each, url, SECONDS) for each in (_fetch, _post)}
    servers = {
        "its name": authority.server(x509.IPAddress(ip_address("127.0.0.1"))),
        "another's": authority.server(x509.DNSName("provider.test")),
    }
    for name, tls in servers.items():
        with playing(_answers, tls) as provider:
            told[name] = _proved(provider, authority.bundle)
    with playing(_answers, servers["its name"]) as provider:
        told["replaced"] = _replaced(provider, authority, folder / "replaced.pem")
    return told


def _replaced(provider: Provider, authority: Authority, bundle: Path) -> list[Any]:
    """Returns the answers before and after a bundle of another authority is replaced by the server's."""
    (other := bundle.parent / "other").mkdir()
    told = []
    for content in (Authority(other).bundle, authority.bundle):
        bundle.with_suffix(".new").write_bytes(content.read_bytes())
        bundle.with_suffix(".new").replace(bundle)
        with _trusting(bundle):
            told.append(_outcome(_fetch, provider.url, GENEROUS)[0])
    return told


def _proved(provider: Provider, bundle: Path) -> dict[str, Any]:
    """Returns the answers of a server whose authority is trusted, and of one whose is not."""
    ways = (_fetch, _post)
    told = {}
    for trust, file in {"trusted": bundle, "not trusted": None}.items():
        with _trusting(file):
            told[trust] = [_outcome(each, provider.url, GENEROUS)[0] for each in ways]
    return told


if __name__ == "__main__":
    with TemporaryDirectory() as folder:
        json.dump(_told(Path(folder)), sys.stdout)
