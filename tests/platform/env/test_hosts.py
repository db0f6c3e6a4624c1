"""Hosts that are this machine, and hosts that the public internet does not reach."""

import pytest

from config.platform.env.hosts import is_loopback, is_private


@pytest.mark.parametrize(
    "address",
    [
        "http://127.0.0.1:8000",
        "http://127.8.8.8/cdn",
        "http://localhost/v1",
        "http://[::1]:1",
        "http://[::ffff:127.0.0.1]/",
    ],
)
def test_this_machine_is_private_too(address: str) -> None:
    assert is_loopback(address)
    assert is_private(address)


@pytest.mark.parametrize(
    "address",
    [
        "http://10.0.0.7/v1",
        "https://192.168.1.9",
        "https://172.16.0.1:443/v1",
        "https://169.254.169.254/",
        "https://100.64.0.1",
        "https://[fd00::1]/v1",
        "https://[fe80::1%25eth0]/v1",
        "https://[::ffff:10.0.0.1]/",
        "http://ollama:11434/v1",
        "https://models.internal/v1",
        "https://models.corp.local./v1",
        "http://0.0.0.0:8000",
        "http://vllm.models.svc:8000/v1",
        "http://vault.service.consul",
        "https://models.corp/v1",
        "https://models.intranet",
        "https://nas.home",
        "http://10.0.0.5.nip.io",
        "http://app-10-0-0-5.sslip.io",
        "http://localtest.me",
        "http://a.LVH.me.:8000",
    ],
)
def test_private_hosts_are_not_this_machine(address: str) -> None:
    assert is_private(address)
    assert not is_loopback(address)


@pytest.mark.parametrize(
    "address",
    [
        "https://api.openai.com/v1",
        "https://127.0.0.1.evil.test",
        "https://localhost.evil.test",
        "https://8.8.8.8",
        "https://mynip.io",
        "https://corp.example.com",
        "https://[2606:4700::1111]/",
    ],
)
def test_other_hosts_are_public(address: str) -> None:
    assert not is_private(address)
    assert not is_loopback(address)
