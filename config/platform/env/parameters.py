"""Parses the query of an address: known parameters, each once. No error repeats one: it may be part of a password."""

from urllib.parse import parse_qsl

from environs import ValidationError
from psycopg import pq

ESCAPED = "Within a user or password, / ? # @ : and % are written %2F %3F %23 %40 %3A and %25."
# Parameters of Django, psycopg and dj-database-url, in addition to those of libpq.
OURS = {
    "assume_role",
    "currentSchema",
    "isolation_level",
    "prepare_threshold",
    "server_side_binding",
}
LIBPQ = frozenset(each.keyword.decode() for each in pq.Conninfo.get_defaults())
SSL_MODES = {"disable", "allow", "prefer", "require", "verify-ca", "verify-full"}


def parameters(query: str, *known: str) -> dict[str, str]:
    """Returns the parameters by name. Raises ``ValidationError`` for any but the ``known`` ones."""
    names = " and ".join(f"{each}=…" for each in known)
    may = f"After `?` there may be {names}, each once." if known else "It must not contain a `?`."
    return _parsed(query, set(known), f"{may} {ESCAPED}")


def database_parameters(query: str) -> None:
    """Checks the parameters of a database's address."""
    advice = (
        "After `?` there may be libpq's parameters, each once (sslmode, sslrootcert, target_session_attrs, …), and "
        f"{', '.join(sorted(OURS))}; a schema is currentSchema=…, TLS sslmode=require. {ESCAPED}"
    )
    parsed = _parsed(query, LIBPQ | OURS, advice)
    if parsed.get("sslmode", "prefer") not in SSL_MODES:
        raise ValidationError(f"sslmode must be one of {', '.join(sorted(SSL_MODES))}.")


def _parsed(query: str, known: set[str] | frozenset[str], advice: str) -> dict[str, str]:
    pairs = parse_qsl(query, keep_blank_values=True)
    parsed = dict(pairs)
    if parsed.keys() - known or len(parsed) < len(pairs):
        raise ValidationError(advice)
    return parsed
