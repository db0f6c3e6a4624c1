"""Stale reads from a replica: none that decides, bills a client, or must show an operator's own change."""

from datetime import datetime, timedelta
from time import monotonic
from typing import NamedTuple

from django.db import DEFAULT_DB_ALIAS, DatabaseError, connections

from config.platform.db.connections import PooledConnection, called, release_connection

REPLICA = "replica"
MOST_BEHIND = timedelta(minutes=5)
# Seconds without a retry: a frozen replica would delay every read.
RETRY_SECONDS = 30.0


class ReplicaConnection(PooledConnection):
    alias = REPLICA
    # Monotonic time of the next attempt after a failure.
    retry_at = 0.0


class Look(NamedTuple):
    """The database to read, and the time up to which it is complete."""

    alias: str
    at: datetime


def look(*, now: datetime) -> Look:
    """Returns the database to read: the primary while the replica is unavailable or far behind."""
    primary = Look(DEFAULT_DB_ALIAS, now)
    if REPLICA not in connections or monotonic() < ReplicaConnection.retry_at:
        return primary
    written = called("pg_current_wal_lsn")
    try:
        replayed = called("pg_last_wal_replay_lsn", using=REPLICA)
        at = called("pg_last_xact_replay_timestamp", using=REPLICA)
    except DatabaseError:
        release_connection(REPLICA)
        ReplicaConnection.retry_at = monotonic() + RETRY_SECONDS
        return primary
    # None if the server is no replica.
    if replayed is not None and called("pg_wal_lsn_diff", written, replayed) <= 0:
        at = now
    return primary if at is None or now - at > MOST_BEHIND else Look(REPLICA, at)
