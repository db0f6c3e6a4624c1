"""Which servers a start brings itself (those whose addresses the process environment does not give), and the
environment file that says where they are.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.tools import Unready, environment, ports, redis
from tests.tools.folders import claim, held, sockets_of
from tests.tools.postgres import Postgres
from tests.tools.variables import Addresses, for_run


@dataclass(frozen=True, kw_only=True)
class Embedded:
    """The servers to start, None for what is given; ``cache`` is None too where there is no package of it."""

    database: Postgres | None
    cache: redis.Redis | None
    provider_port: int | None
    cdn_port: int | None
    cache_given: bool

    def addresses(self, host: str, port: int) -> Addresses:
        """What the environment file says of them, and of the service itself."""
        without = None if self.cache_given else ""
        provider = self.provider_port and f"http://127.0.0.1:{self.provider_port}/v1"
        return Addresses(
            host=host,
            port=port,
            database=self.database.url if self.database is not None else None,
            cache=self.cache.url if self.cache is not None else without,
            provider=provider or None,
            cdn=f"http://127.0.0.1:{self.cdn_port}" if self.cdn_port is not None else None,
        )


def write_environment(
    folder: Path, *, host: str, port: int, sockets: Path, environ: Mapping[str, str]
) -> tuple[Embedded, dict[str, str]]:
    """Decides by the process environment what is embedded, and writes the file; the folder must be held.

    Returns what has to be started, and the file's values.
    """
    before = environment.read(folder / "env")
    embedded = _embedded(folder, sockets, environ, before)
    values = for_run(folder, embedded.addresses(host, port), before)
    environment.write(folder / "env", values)
    return embedded, values


def ensure_environment(folder: Path, environ: Mapping[str, str]) -> None:
    """Writes the file where there is none, so that manage.py knows where `make run` will bring its servers."""
    claim(folder)
    host, port = ports.named(environ)
    if not (folder / "env").exists():
        # Held by another one: that one is writing it.
        with suppress(Unready), held(folder), sockets_of(folder) as sockets:
            write_environment(folder, host=host, port=port, sockets=sockets, environ=environ)


def _embedded(
    folder: Path, sockets: Path, environ: Mapping[str, str], before: Mapping[str, str]
) -> Embedded:
    database = cache = provider = cdn = None
    logs = claim(folder / "log")
    if not environment.given("DATABASE_URL", environ):
        database = Postgres(folder=folder, sockets=sockets, log=logs / "postgres.log")
    cache_given = environment.given("CACHE_URL", environ)
    if not cache_given and redis.available():
        cache = redis.Redis(folder=folder, sockets=sockets, log=logs / "redis.log")
    if not environment.given("LLM_BASE_URL", environ):
        provider = ports.same_or_free(_port_of(before.get("LLM_BASE_URL", "")))
    if not environment.given("CDN_URL", environ):
        cdn = ports.same_or_free(_port_of(before.get("CDN_URL", "")))
    return Embedded(
        database=database,
        cache=cache,
        provider_port=provider,
        cdn_port=cdn,
        cache_given=cache_given,
    )


def _port_of(address: str) -> int:
    port = address.rpartition(":")[2].partition("/")[0]
    return int(port) if port.isdigit() else 0
