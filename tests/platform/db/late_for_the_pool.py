"""Prints how many waits for the only connection came too late, and whether it is lent again after them."""

from gevent import monkey

monkey.patch_all()

import django  # noqa: E402
from django.conf import settings  # noqa: E402

django.setup()
settings.DATABASES["default"]["OPTIONS"]["pool"]["max_size"] = 1

from django.db import connection as ours  # noqa: E402

from config.platform.concurrency.batching import BatchedStatement  # noqa: E402
from config.platform.concurrency.greenlets import within  # noqa: E402
from config.platform.db.connections import close_pool  # noqa: E402

WAITS = 3
ONE = BatchedStatement("SELECT %s::int")


def late() -> int:
    """Waits for the only connection while another holds it; each batch that waits on returns it."""
    pool = ours.pool
    pool.open()
    held, number = pool.getconn(), 0
    for _ in range(WAITS):
        try:
            within(0.1, ONE.row, (1,))
        except TimeoutError:
            number += 1
    pool.putconn(held)
    return number


if __name__ == "__main__":
    print(late())
    assert ONE.row((2,)) == (2,)
    print("lent again")
    close_pool()
