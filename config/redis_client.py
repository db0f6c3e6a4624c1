"""redis-py without what it does around a command (retries, metrics, events), which costs more than the command."""

import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from redis import ConnectionPool, Redis
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as NotConnected
from redis.exceptions import ResponseError
from redis.retry import Retry

from config.quiet import is_quiet

CONNECTIONS = 32


class LeanRedis(Redis):
    """Commands as redis-py has them, each over a connection that is lent to one caller at a time and opened once.

    At most ``CONNECTIONS`` are open: under a burst, waiting for one is right, and an error or a thousand connections
    are not. One that its server has closed meanwhile is opened anew. No connecting, waiting or answering may take
    longer than ``seconds``. redis-py's pipelines and subscriptions have ways of their own and are not for this client.
    """

    def __init__(self, location: str, *, seconds: float) -> None:
        # No retries and no handshake beyond what is needed; a query of the address wins.
        options: dict[str, Any] = {"retry": Retry(NoBackoff(), 0), "protocol": 2}
        pool = ConnectionPool.from_url(
            location,
            socket_timeout=seconds,
            socket_connect_timeout=seconds,
            driver_info=None,
            **options,
        )
        super().__init__(connection_pool=pool)
        self._seconds = seconds
        self._room = threading.BoundedSemaphore(CONNECTIONS)
        # The last one used is the first to be used again, so that there are no more than are needed.
        self._idle: deque[Any] = deque()

    def execute_command(self, *args: Any, **options: Any) -> Any:
        with self._connection() as connection:
            connection.send_command(*args, check_health=False)
            return self.parse_response(connection, args[0], **options)  # type: ignore[no-untyped-call]

    def execute_all(self, commands: Sequence[Sequence[Any]]) -> list[Any]:
        """The answers to some commands, sent in one go, as they come from the server; a refusal is one of them."""
        with self._connection() as connection:
            connection.send_packed_command(connection.pack_commands(commands), check_health=False)
            return [_answer(connection) for _ in commands]

    def disconnect_idle(self) -> None:
        """Closes what nobody uses just now; it is opened again when it is needed."""
        closed: list[Any] = []
        with suppress(IndexError):
            while True:
                closed.append(self._idle.pop())
        for connection in closed:
            connection.disconnect()
        self._idle.extendleft(closed)

    @contextmanager
    def _connection(self) -> Iterator[Any]:
        """One that is open, for as many answers as there are questions."""
        if not self._room.acquire(timeout=self._seconds):
            raise NotConnected("All connections are in use.")
        try:
            try:
                connection = self._idle.pop()
            except IndexError:
                connection = self.connection_pool.make_connection()
            try:
                socket = connection._sock  # noqa: SLF001 - it shows it to nobody
                if socket is not None and not is_quiet(socket.fileno()):
                    connection.disconnect()
                if not connection.is_connected:
                    connection.connect()
                yield connection
            except ResponseError:
                # An answer like any other.
                raise
            except BaseException:
                # An answer may still come, and must not become that of the next question.
                connection.disconnect()
                raise
            finally:
                self._idle.append(connection)
        finally:
            self._room.release()


def _answer(connection: Any) -> Any:
    try:
        return connection.read_response()
    except ResponseError as refusal:
        return refusal
