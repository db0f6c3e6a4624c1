"""Resources of a service's processes: memory, descriptors, database connections and greenlets."""

import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg

from tests.bench.processes import PROC, pss_mib, tree
from tests.soak.flatness import Bound

EVERY_SECONDS = 5.0
# By kind, what of it is flat; memory is in MiB, with shared pages divided (PSS).
KINDS: dict[str, Bound] = {
    "memory": Bound(part=0.08, floor=4.0),
    "descriptors": Bound(part=0.1, floor=8.0),
    "greenlets": Bound(part=0.1, floor=4.0),
    "connections": Bound(part=0.25, floor=6.0),
}
_CONNECTIONS = """
SELECT count(*) FROM pg_stat_activity WHERE datname = %s AND pid <> pg_backend_pid()
"""


class Looks:
    """``series``: by kind and by who holds it, the seconds since the beginning and the figure."""

    def __init__(
        self, masters: Mapping[str, int], greenlets: Path, database: tuple[str, str]
    ) -> None:
        self._masters, self._greenlets, self._database = masters, greenlets, database
        self.series: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
        self._names: dict[int, str] = {}
        self._began = time.monotonic()

    def look(self) -> None:
        at = time.monotonic() - self._began
        for pid, name in self._processes():
            # It may end while it is looked at.
            with suppress(OSError, LookupError, ValueError):
                self._note("memory", name, at, pss_mib(pid))
                self._note("descriptors", name, at, len(list((PROC / str(pid) / "fd").iterdir())))
                self._note("greenlets", name, at, float((self._greenlets / str(pid)).read_text()))
        url, name = self._database
        with suppress(psycopg.OperationalError), psycopg.connect(url) as server:
            (number,) = server.execute(_CONNECTIONS, [name]).fetchone() or (0,)
            self._note("connections", "all processes", at, number)

    def _note(self, kind: str, name: str, at: float, figure: float) -> None:
        self.series[kind, name].append((at, float(figure)))

    def _processes(self) -> Iterator[tuple[int, str]]:
        """Each with a name that no other of this soak has."""
        for what, master in self._masters.items():
            for number, pid in enumerate(tree(master)):
                if pid not in self._names:
                    same = sum(each.startswith(what) for each in self._names.values())
                    self._names[pid] = f"{what} {same}" if number else what
                yield pid, self._names[pid]


@contextmanager
def looking(looks: Looks) -> Iterator[None]:
    """Again and again for as long."""
    over = threading.Event()

    def repeat() -> None:
        while not over.wait(EVERY_SECONDS):
            looks.look()

    thread = threading.Thread(target=repeat)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
