from ipaddress import ip_network

import pytest
from django.http import HttpRequest
from django.test import RequestFactory
from pytest_django import Settings

from config.platform.request.client_address import address_of, find

PROXY, SECOND_PROXY, CLIENT = "10.0.0.1", "10.0.0.2", "203.0.113.7"


@pytest.fixture(autouse=True)
def _proxies(settings: Settings) -> None:
    settings.TRUSTED_PROXIES = [ip_network("10.0.0.0/24"), ip_network("2001:db8:ffff::/48")]


def passed_on(peer: str, **meta: str) -> HttpRequest:
    """A request from this peer as what comes after sees it."""
    request = RequestFactory().get("/", **{"REMOTE_ADDR": peer, **meta})
    request.headers.get("X-Request-ID")
    find(request)
    return request


@pytest.mark.parametrize(
    ("peer", "forwarded", "client"),
    [
        (CLIENT, "", CLIENT),
        (CLIENT, "198.51.100.1", CLIENT),
        (PROXY, "", PROXY),
        (PROXY, CLIENT, CLIENT),
        (PROXY, f"198.51.100.1, {CLIENT}", CLIENT),
        (PROXY, f"198.51.100.1,{CLIENT} , {SECOND_PROXY}", CLIENT),
        (PROXY, f"10.0.0.9, {SECOND_PROXY}", "10.0.0.9"),
        (PROXY, f"{CLIENT}, unknown, {SECOND_PROXY}", SECOND_PROXY),
        (PROXY, f"{CLIENT},,{SECOND_PROXY}", SECOND_PROXY),
        (PROXY, "unknown", PROXY),
        (PROXY, "1.2.3.4.5", PROXY),
        (PROXY, "203.0.113.07", PROXY),
        (PROXY, f"{CLIENT}:4711", CLIENT),
        (PROXY, "[2001:db8::7]:443", "2001:db8::7"),
        (PROXY, "[2001:db8::7]", "2001:db8::7"),
        (PROXY, "2001:0DB8:0:0::7", "2001:db8::7"),
        (PROXY, f"::ffff:{CLIENT}", CLIENT),
        (PROXY, "fe80::1%eth0", "fe80::1"),
        ("::ffff:10.0.0.1", CLIENT, CLIENT),
        ("fe80::1%eth0", CLIENT, "fe80::1"),
        ("2001:db8:ffff::1", "2001:db8::7", "2001:db8::7"),
        ("", CLIENT, "127.0.0.1"),
    ],
)
def test_the_client_is_the_rightmost_address_that_is_no_trusted_proxy(
    peer: str, forwarded: str, client: str
) -> None:
    meta = {"HTTP_X_FORWARDED_FOR": forwarded} if forwarded else {}
    assert address_of(passed_on(peer, **meta)) == client


def test_a_peer_on_a_unix_socket_is_trusted_when_loopback_is(settings: Settings) -> None:
    settings.TRUSTED_PROXIES = [ip_network("127.0.0.0/8")]
    assert address_of(passed_on("", HTTP_X_FORWARDED_FOR=CLIENT)) == CLIENT


def test_no_peer_is_trusted_without_trusted_proxies(settings: Settings) -> None:
    settings.TRUSTED_PROXIES = []
    assert address_of(passed_on("127.0.0.1", HTTP_X_FORWARDED_FOR=CLIENT)) == "127.0.0.1"


def test_forwarded_headers_of_an_untrusted_peer_are_removed(settings: Settings) -> None:
    request = passed_on(
        CLIENT,
        HTTP_X_FORWARDED_FOR="198.51.100.1",
        HTTP_X_FORWARDED_PROTO="https",
        HTTP_X_FORWARDED_HOST="evil.test",
        HTTP_X_FORWARDED_PORT="443",
        HTTP_X_FORWARDED_PREFIX="/x",
        HTTP_FORWARDED="for=198.51.100.1;proto=https",
        HTTP_X_REQUEST_ID="kept-as-it-is",
    )
    assert not [name for name in request.META if "FORWARDED" in name]
    assert not [name for name in request.headers if "forwarded" in name.lower()]
    assert request.headers["X-Request-ID"] == "kept-as-it-is"
    assert not request.is_secure()


def test_a_trusted_proxy_states_whether_the_client_used_https() -> None:
    assert passed_on(PROXY, HTTP_X_FORWARDED_PROTO="https").is_secure()
    assert not passed_on(PROXY, HTTP_X_FORWARDED_PROTO="http").is_secure()


def test_a_request_without_the_middleware_has_the_address_of_its_peer() -> None:
    request = RequestFactory().get("/", REMOTE_ADDR=PROXY, HTTP_X_FORWARDED_FOR=CLIENT)
    assert address_of(request) == PROXY


def test_no_header_can_set_the_address() -> None:
    request = passed_on(CLIENT, HTTP_CONFIG_CLIENT_ADDRESS="198.51.100.1")
    assert address_of(request) == CLIENT
