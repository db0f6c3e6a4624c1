"""The client for ``CACHE_URL``: one Redis server, a Sentinel set or a cluster.

``redis+sentinel://host,host/service`` names sentinels and the service they watch, ``redis+cluster://host,host``
some nodes of a cluster. ``user:password@`` before the hosts is for the Redis servers.
"""

from typing import Any
from urllib.parse import unquote, urlsplit

from redis import Redis, RedisCluster, Sentinel
from redis.backoff import NoBackoff
from redis.cluster import ClusterNode
from redis.retry import Retry

Client = Redis | RedisCluster

SINGLE = {"redis", "rediss", "unix"}
CLUSTER = "redis+cluster"
PORTS = {"redis+sentinel": 26379, CLUSTER: 6379}
# Redis answers in well under a millisecond; a request that waits longer than this is better served without it.
SOCKET_SECONDS = 0.25
TIMEOUTS = {"socket_timeout": SOCKET_SECONDS, "socket_connect_timeout": SOCKET_SECONDS}


def client_of(address: str) -> Client:
    """Returns a client that gives up soon and leaves trying again to its caller."""
    retry = Retry(NoBackoff(), 0)
    if urlsplit(address).scheme in SINGLE:
        return Redis.from_url(address, protocol=2, retry=retry, **TIMEOUTS)
    user, nodes, service = parsed(address)
    options: dict[str, Any] = {"protocol": 2, **TIMEOUTS, **user}
    if not service:
        startup = [ClusterNode(*node) for node in nodes]  # type: ignore[no-untyped-call]
        return RedisCluster(startup_nodes=startup, retry=retry, **options)
    patience = {"retry": retry, **TIMEOUTS}
    sentinels = Sentinel(nodes, sentinel_kwargs=patience, **options)  # type: ignore[no-untyped-call]
    master: Redis = sentinels.master_for(service, retry=retry)  # type: ignore[no-untyped-call]
    return master


def check(address: str) -> None:
    """Raises ``ValueError`` for what is no address of a Redis."""
    if urlsplit(address).scheme in SINGLE:
        # Made and not connected.
        Redis.from_url(address)
    else:
        parsed(address)


def parsed(address: str) -> tuple[dict[str, str], list[tuple[str, int]], str]:
    """Returns user and password, the nodes and, for Sentinel, the service."""
    parts = urlsplit(address)
    if parts.scheme not in PORTS or parts.query:
        raise ValueError
    hosts = [urlsplit(f"//{host}") for host in parts.netloc.rpartition("@")[2].split(",")]
    nodes = [(host.hostname or "", host.port or PORTS[parts.scheme]) for host in hosts]
    service = parts.path.strip("/")
    if not all(host for host, _ in nodes) or bool(service) != (parts.scheme == "redis+sentinel"):
        raise ValueError
    given = {"username": parts.username, "password": parts.password}
    return {name: unquote(value) for name, value in given.items() if value}, nodes, service
