"""Checks that the ports of one service differ."""

from ipaddress import ip_address


def faults(*, host: str, port: int, web: int | None, worker: int | None) -> dict[str, str]:
    """Returns a sentence for each variable whose port is taken by another; 0 is any free port."""
    found = {}
    if web is not None and web == port:
        found["METRICS_PORT"] = "Must differ from PORT."
    if worker is not None and worker in {port, web} and not _is_every_address(host):
        found["WORKER_METRICS_PORT"] = (
            "Must differ from PORT and METRICS_PORT, which listen on the same HOST."
        )
    return found


def _is_every_address(host: str) -> bool:
    """Returns whether a host is the unspecified address, as in containers, which do not share it."""
    try:
        return ip_address(host).is_unspecified
    except ValueError:
        return False
