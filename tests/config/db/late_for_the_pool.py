"""Prints how many waits for the only connection came too late, and whether it is lent again after them."""

from gevent import monkey

monkey.patch_all()

import django  # noqa: E402
from django.conf import settings  # noqa: E402

django.setup()
settings.DATABASES["default"]["OPTIONS"]["pool"]["max_size"] = 1

from config.db.batching import borrowed  # noqa: E402
from config.db.connections import PooledConnection, close_pool  # noqa: E402
from config.greenlets import within  # noqa: E402

WAITS = 3


def take() -> None:
    connection = borrowed()
    connection.lender.putconn(connection)


def late(connection: PooledConnection) -> int:
    number = 0
    for _ in range(WAITS):
        try:
            within(0.1, take)
        except TimeoutError:
            number += 1
    connection.lender.putconn(connection)
    return number


if __name__ == "__main__":
    print(late(borrowed()))
    take()
    print("lent again")
    close_pool()
