"""The client for ``CACHE_URL``: one Redis server, a Sentinel set or a cluster.

``redis+sentinel://host,host/service`` names sentinels and the service they watch, ``redis+cluster://host,host``
some nodes of a cluster. ``user:password@`` before the hosts is for the Redis servers.
"""

import re
from typing import Any
from urllib.parse import unquote, urlsplit

from redis import Redis, RedisCluster, Sentinel
from redis.backoff import NoBackoff
from redis.cluster import ClusterNode
from redis.exceptions import RedisError
from redis.retry import Retry

Client = Redis | RedisCluster

SINGLE = {"redis", "rediss", "unix"}
CLUSTER = "redis+cluster"
PORTS = {"redis+sentinel": 26379, CLUSTER: 6379}
# Python's parser supports one host, and its versions differ on several with one in brackets.
SEVERAL = re.compile(
    r"(?:(?P<username>[^:/?#]*)(?::(?P<password>[^/?#]*))?@)?(?P<hosts>[^@/?#]+)/?(?P<service>[^/?#]*)/?"
)
# Redis answers in well under a millisecond; beyond this wait a request is better off without it.
SOCKET_SECONDS = 0.25
TIMEOUTS = {"socket_timeout": SOCKET_SECONDS, "socket_connect_timeout": SOCKET_SECONDS}


def client_of(address: str) -> Client:
    """Returns a client with short timeouts and no retries."""
    retry = Retry(NoBackoff(), 0)
    if _scheme(address) in SINGLE:
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
    """Raises ``ValueError`` for an invalid Redis address."""
    if _scheme(address) not in SINGLE:
        parsed(address)
        return
    parts = urlsplit(address)
    is_numbered = parts.scheme == "unix" or not parts.path.strip("/") or parts.path[1:].isdecimal()
    if parts.fragment or not is_numbered:
        raise ValueError
    try:
        # Created but not connected. An option that the scheme's connection does not support is a wrong argument.
        Redis.from_url(address, **TIMEOUTS).connection_pool.make_connection()
    except (TypeError, RedisError) as error:
        raise ValueError from error


def parsed(address: str) -> tuple[dict[str, str], list[tuple[str, int]], str]:
    """Returns user and password, the nodes and, for Sentinel, the service."""
    scheme = _scheme(address)
    found = SEVERAL.fullmatch(address.partition("://")[2])
    if scheme not in PORTS or found is None:
        raise ValueError
    hosts = [urlsplit(f"//{host}") for host in found["hosts"].split(",")]
    nodes = [(host.hostname or "", host.port or PORTS[scheme]) for host in hosts]
    service = found["service"]
    if not all(host for host, _ in nodes) or bool(service) != (scheme == "redis+sentinel"):
        raise ValueError
    credentials = {name: found[name] for name in ("username", "password")}
    return {name: unquote(value) for name, value in credentials.items() if value}, nodes, service


def _scheme(address: str) -> str:
    return address.partition(":")[0].lower()
