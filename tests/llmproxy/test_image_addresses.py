"""Images that a provider would fetch: only from named hosts, and none where it is not known to fetch safely."""

from collections.abc import Iterator

import pytest

from config.platform.problems.problem import InvalidRequest
from llmproxy.prompts.image_addresses import check
from llmproxy.requests.chat import parse

DATA = "data:image/png;base64,AAAA"
AT = "/messages/1/content/1/image_url/url"


def fetched(*urls: str) -> Iterator[tuple[str, str]]:
    images = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    text = {"type": "text", "text": "https://127.0.0.1/ is no image."}
    messages = [
        {"role": "system", "content": "Look."},
        {"role": "user", "content": [text, *images]},
        {"role": "assistant", "content": None},
    ]
    return parse({"messages": messages}, stream=None).fetched_images()


def faults(*urls: str, fetches: bool = True) -> list[tuple[str, str]]:
    with pytest.raises(InvalidRequest) as refusal:
        check(fetched(*urls), fetches=fetches)
    return [(fault.pointer, fault.code) for fault in refusal.value.errors]


@pytest.mark.parametrize(
    "url",
    [
        "https://169.254.169.254/latest/meta-data/",
        "https://127.0.0.1/",
        "https://127.0.0.1./",
        "https://127.1/",
        "https://2130706433/",
        "https://0x7f000001/",
        "https://0x7f.1/",
        "https://0177.0.0.1:8443/",
        "https://8.8.8.8/a.png",
        "https://a.test.1/",
        "https://[::1]/",
        "https://[::ffff:169.254.169.254]/",
        "https://[fe80::1%25eth0]/",
    ],
)
def test_an_address_that_names_no_host_is_refused(url: str) -> None:
    assert faults(url) == [(AT, "literal_address")]


@pytest.mark.parametrize(
    "url",
    [
        "https://name:secret@a.test/b.png",
        "https://name@a.test/b.png",
        "https://@a.test/",
        "https://a.test\\@169.254.169.254/",
        "https://a.test%00@b.test/",
    ],
)
def test_an_address_with_userinfo_is_refused(url: str) -> None:
    assert faults(url) == [(AT, "userinfo")]


@pytest.mark.parametrize(
    "url",
    [
        "https://",
        "https:///a.png",
        "https:////169.254.169.254/",
        "https://localhost/",
        "https://shell.localhost./",
        "https://169.254.169.254\\.a.test/",
        "https://%31%36%39.254.169.254.a/",
        "https://\uff11\uff12\uff17.0.0.\uff11/",
        "https://a.test\u3002/",
        "https://a.te\tst/",
        "https://a.test:port/",
        "https://[brackets/",
        "https://a..test/",
    ],
)
def test_an_address_that_readers_take_in_different_ways_is_refused(url: str) -> None:
    assert faults(url) == [(AT, "invalid")]


@pytest.mark.parametrize(
    "url",
    [
        "https://a.test/b.png",
        "https://A.Test:8443/b.png?size=1#x",
        "https://a.test./b.png",
        "https://1.2.3.4.a.test/@b:c",
        "https://xn--bcher-kva.example/1.2.3.4",
        DATA,
    ],
)
def test_named_hosts_and_data_are_taken(url: str) -> None:
    check(fetched(url), fetches=True)


def test_a_provider_that_fetches_nothing_takes_data_alone() -> None:
    check(fetched(DATA), fetches=False)
    second = AT.replace("content/1", "content/2")
    assert faults(DATA, "https://a.test/b.png", fetches=False) == [(second, "data_only")]


@pytest.mark.parametrize(
    "url",
    [
        "https://metadata.google.internal/computeMetadata/v1/",
        "https://printer.local/",
        "https://redis:6379/",
        "https://NAS.lan./a.png",
    ],
)
def test_a_name_of_a_private_network_is_refused_whatever_the_providers_is(url: str) -> None:
    assert faults(url) == [(AT, "invalid")]


def test_the_first_twenty_are_listed() -> None:
    assert len(faults(*["https://1.1.1.1/"] * 30)) == 20
