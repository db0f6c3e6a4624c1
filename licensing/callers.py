"""The caller of a request: user, session, client, licence and plan, from their rows, in one query."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, NamedTuple, cast, get_type_hints
from uuid import UUID

from django.db.models import Model
from rest_framework.request import Request

from accounts.hooks import Claims, DeviceLimit
from config.platform.concurrency.batching import BatchedLookup, BatchedStatement
from licensing.models import DevicesFull, Standing, merged
from licensing.notices import is_below


def _members_of(table: str) -> dict[str, str]:
    """The members of one row's notice to shells, as SQL: NULL for those that it has not."""
    lasts = f"COALESCE({table}.message_until > now(), true)"
    until = f"""to_char({table}.message_until AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')"""
    return {
        "minimum_version": f"NULLIF({table}.minimum_version, '')",
        "message": f"CASE WHEN {table}.message_id IS NOT NULL AND {lasts} THEN jsonb_build_object('id', "
        f"{table}.message_id, 'level', {table}.message_level, 'text', {table}.message_text, 'until', {until}) END",
        "shell": f"CASE WHEN {table}.shell_channel || {table}.shell_version <> '' THEN jsonb_build_object('channel', "
        f"NULLIF({table}.shell_channel, ''), 'version', NULLIF({table}.shell_version, '')) END",
    }


def _notice() -> str:
    """One value for all members, NULL without any: almost always, so it costs a caller nothing."""
    own, of_all = _members_of("licence"), _members_of("notice")
    members = (f"'{name}', COALESCE({own[name]}, {of_all[name]})" for name in own)
    return f"NULLIF(jsonb_strip_nulls(jsonb_build_object({', '.join(members)})), '{{}}')"


# The session or key has neither ended nor expired.
_LASTS = "held.ended_at IS NULL AND (held.expires_at IS NULL OR held.expires_at > now())"


class CallerKey(NamedTuple):
    """The personal key of a call: the epoch of its making, its own monthly cap, and whether the plan has such keys."""

    id: Annotated[UUID, "held.id"]
    epoch: Annotated[int, "held.epoch"]
    monthly_output_tokens: Annotated[int | None, "held.monthly_output_tokens"]
    last_used_at: Annotated[datetime | None, "held.last_used_at"]
    is_allowed: Annotated[bool | None, "plan.allows_keys"]


@dataclass(frozen=True, slots=True)
class Caller:
    """The authenticated caller with its licence, in place of Django's user.

    It has a session or a personal ``key``; ``session_lasts`` is of whichever it is. Each field but the key is annotated
    with its column of the query.
    """

    user_id: Annotated[UUID, "person.id"]
    email: Annotated[str, "person.email"]
    epoch: Annotated[int, "person.epoch"]
    is_active: Annotated[bool, "person.is_active"]
    session_id: Annotated[UUID | None, "held.id"]
    session_lasts: Annotated[bool, _LASTS]
    client_id: Annotated[UUID | None, "client.id"]
    client_name: Annotated[str | None, "client.name"]
    status: Annotated[str | None, "licence.status"]
    grace_until: Annotated[datetime | None, "licence.grace_until"]
    seats: Annotated[int | None, "licence.seats"]
    devices: Annotated[int | None, "licence.devices"]
    plan_id: Annotated[int | None, "plan.id"]
    plan: Annotated[str | None, "plan.name"]
    plan_entitlements: Annotated[Sequence[str] | None, "plan.entitlements"]
    own_entitlements: Annotated[Sequence[str] | None, "licence.entitlements"]
    monthly_input_tokens: Annotated[int | None, "plan.monthly_input_tokens"]
    monthly_output_tokens: Annotated[int | None, "plan.monthly_output_tokens"]
    daily_tokens: Annotated[int | None, "plan.daily_tokens"]
    cached_input_percent: Annotated[int, "COALESCE(plan.cached_input_percent, 100)"]
    # The members that the licence status has beside its own, as JSON where any are set: Django reads none by itself.
    notice: Annotated[str | None, _notice()]
    # See the plan's.
    catalogue_version: Annotated[UUID | None, "plan.catalogue_version"]
    key: CallerKey | None = None

    is_authenticated = True

    @property
    def pk(self) -> UUID:
        return self.user_id

    @property
    def may_call(self) -> bool:
        """Returns whether the caller is enabled, has a valid session or key, and is of a client with a licence.

        A key is made in an epoch, and ends with it like every session: by a revocation or a new password.
        """
        lasts = self.session_lasts and (self.key is None or self.key.epoch == self.epoch)
        return self.is_active and lasts and self.status is not None

    @property
    def is_suspended(self) -> bool:
        return self.status == Standing.SUSPENDED

    @property
    def minimum_version(self) -> str | None:
        minimum: str | None = self._noticed("minimum_version")
        return minimum

    @property
    def message(self) -> dict[str, Any] | None:
        message: dict[str, Any] | None = self._noticed("message")
        return message

    @property
    def shell(self) -> dict[str, Any] | None:
        """The source of the shell's updates. A minimum beats an older pin, which would keep it locked."""
        shell: dict[str, Any] | None = self._noticed("shell")
        if (
            shell
            and self.minimum_version
            and is_below(shell.get("version", ""), self.minimum_version)
        ):
            shell = {name: value for name, value in shell.items() if name != "version"}
        return shell or None

    def _noticed(self, member: str) -> Any:
        return json.loads(self.notice).get(member) if self.notice else None

    @property
    def entitlements(self) -> list[str]:
        return merged(list(self.plan_entitlements or ()), list(self.own_entitlements or ()))


def caller_of(request: Request) -> Caller:
    """The caller of an authenticated request."""
    return cast("Caller", request.user)


def _selected(of: type, **others: str) -> str:
    """The columns of a class's fields in their order, so that a row makes one; ``others`` replace some."""
    hints = get_type_hints(of, include_extras=True)
    hints.pop("key", None)
    columns = {name: hint.__metadata__[0] for name, hint in hints.items()} | others
    return ", ".join(columns.values())


_OF_HOLDER = """
JOIN accounts_user person ON person.id = held.user_id
LEFT JOIN accounts_client client ON client.id = person.client_id
LEFT JOIN licensing_licence licence ON licence.client_id = client.id
LEFT JOIN licensing_plan plan ON plan.id = licence.plan_id
LEFT JOIN licensing_servicenotice notice ON licence.id IS NOT NULL
"""
_CALLER = BatchedLookup(
    f"""
SELECT {_selected(Caller)}, asked.place
FROM (VALUES KEYS) AS asked(id, user_id, place)
JOIN accounts_session held ON held.id = asked.id AND held.user_id = asked.user_id {_OF_HOLDER}
""",  # nosec B608 # noqa: S608 - built from constants of this project
    ["uuid", "uuid"],
)


def load_caller(*, user_id: UUID, session_id: UUID) -> Caller | None:
    """The caller of a user's session, or None if there is no such session."""
    row = _CALLER.row((session_id, user_id))
    return Caller(*row) if row else None


_SIGNED_OUT = BatchedLookup(
    f"""
SELECT {_selected(Caller, session_id="NULL::uuid", session_lasts="false")}, held.place
FROM (VALUES KEYS) AS held(user_id, place) {_OF_HOLDER}
""",  # nosec B608 # noqa: S608 - as above
    ["uuid"],
)


def load_signed_out(*, user_id: UUID) -> Caller:
    """A person as the caller that they would be if they had a session."""
    return Caller(*_SIGNED_OUT.row((user_id,)) or ())


class KeyHolders:
    """Loads the holders of keys in one query each, as :func:`load_caller` does, by the table of a higher app.

    Its model has the fields of a session's end, ``user``, ``hash`` and those of ``CallerKey``.
    """

    def __init__(self, keys: type[Model]) -> None:
        table = keys._meta.db_table  # noqa: SLF001 - Django's documented API
        self._statement = BatchedLookup(
            f"""
SELECT {_selected(Caller, session_id="NULL::uuid")}, {_selected(CallerKey)}, asked.place
FROM (VALUES KEYS) AS asked(hash, place)
JOIN {table} held ON held.hash = asked.hash {_OF_HOLDER}
""",  # nosec B608 # noqa: S608 - built from constants of this project
            ["bytea"],
        )

    def load(self, *, hashed: bytes) -> Caller | None:
        """The holder of the key with this hash, or None if there is no such key."""
        row = self._statement.row((hashed,))
        if row is None:
            return None
        of_key = len(CallerKey._fields)
        return Caller(*[*row[:-of_key], CallerKey(*row[-of_key:])])


_CLAIMS = BatchedStatement(
    """
SELECT licence.client_id, plan.name, plan.entitlements, licence.entitlements, licence.devices, licence.devices_full
FROM accounts_user person
JOIN licensing_licence licence ON licence.client_id = person.client_id
JOIN licensing_plan plan ON plan.id = licence.plan_id
WHERE person.id = %s
"""
)


def claims_of(user_id: UUID) -> Claims | None:
    """The claims about a user's client, or None without a licensed client."""
    row = _CLAIMS.row((user_id,))
    if row is None:
        return None
    client_id, plan, of_plan, of_licence, devices, when_full = row
    limit = None if devices is None else DeviceLimit(devices, when_full == DevicesFull.OLDEST)
    entitlements = merged(of_plan, of_licence)
    return Claims(client_id=client_id, plan=plan, entitlements=entitlements, device_limit=limit)
