"""The port of the service: taken, forbidden or nonsense is said before anything starts."""

import socket

import pytest

from tests.tools import Unready, ports


def test_a_taken_port_is_named_with_a_way_out() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(Unready, match=rf"Port {port} is taken.* PORT=\d+ make run"):
            ports.chosen({"PORT": str(port)})


@pytest.mark.parametrize("nonsense", ["http", "-1", "65536", "8000.0", "٨"])
def test_a_text_that_is_no_port_is_refused(nonsense: str) -> None:
    with pytest.raises(Unready, match="PORT is"):
        ports.chosen({"PORT": nonsense})


@pytest.mark.parametrize("host", ["203.0.113.1", "300.1.1.1", "no.such.host.invalid"])
def test_a_host_that_is_not_of_this_machine_is_refused_without_advice_about_ports(
    host: str,
) -> None:
    with pytest.raises(Unready, match=rf"Nothing can listen on {host} .* HOST=127") as refused:
        ports.chosen({"HOST": host, "PORT": "0"})
    assert "PORT=" not in str(refused.value)


def test_any_free_port_can_be_asked_for_that_no_connection_is_given() -> None:
    host, port = ports.chosen({"PORT": "0"})
    assert (host, port in ports.OURS) == ("127.0.0.1", True)


def test_a_port_that_was_chosen_is_nobody_elses_before_its_server_listens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    port = ports.free("127.0.0.1", 0)
    monkeypatch.setattr(ports, "OURS", range(port, port + 1))
    assert ports.free("127.0.0.1", 0) != port


def test_a_port_is_kept_while_it_is_free() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert ports.same_or_free(port) != port
    assert ports.same_or_free(port) == port
