"""Rules for existing customer organisations. Creation includes the licence and is in ``licensing``."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, TypedDict, Unpack
from unicodedata import category, normalize
from uuid import UUID

from django.db import transaction
from django.db.models import ProtectedError

from accounts.audit import Actor, check_reason, record
from accounts.models import Client
from accounts.people.client_names import alike
from accounts.people.emails import is_email
from config.platform.db.advisory_locks import lock_until_commit
from config.platform.problems.edit_conflicts import change
from config.platform.problems.problem import Fault, InvalidRequest

# Control and format characters, separators of lines and paragraphs, halves of characters.
UNSEEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
# Persian and Indic scripts write words with them.
JOINERS = "\u200c\u200d"
# Of notes, in the audit log.
LABELS = {"contract": "contract", "manager": "account manager", "notes": "notes"}


class ClientHasPeople(InvalidRequest):
    default_detail = (
        "People belong to this client. Move or delete them first, or suspend its licence."
    )


class ClientNotes(TypedDict, total=False):
    """The notes of a client, plain text each; the lengths are those of the columns."""

    contract: str
    manager: str
    notes: str


class NoSuchClient(InvalidRequest):
    """A name or id that belongs to no client, or to several."""


def find_client(written: str) -> Client:
    """The client with a name, or else one that looks alike, or with an id. Raises ``NoSuchClient``."""
    named = written.strip()
    try:
        found = list(Client.objects.filter(pk=UUID(named)))
    except ValueError:
        # Of a pair from before each is found by its own name.
        found = list(Client.objects.filter(name__iexact=named)[:2]) or list(alike(named)[:2])
    if len(found) == 1:
        return found[0]
    sentence = (
        "Several clients have this name: use the id of one."
        if found
        else "There is no client with this name."
    )
    raise NoSuchClient(errors=[Fault("/client", "ambiguous" if found else "unknown", sentence)])


def rename_client(*, client_id: UUID, name: str, by: Actor, now: datetime) -> Client:
    """Renames an organisation; its id, which tokens and the ledger carry, stays."""
    with transaction.atomic():
        client = _locked(client_id)
        # A name of before may stay as it is.
        before = {"name": client.name}
        if name.strip() != client.name:
            client.name = new_name(name, but=client_id)
            client.save(update_fields=["name"])
        after = {"name": client.name}
        if before != after:
            record("client:renamed", client, by=by, now=now, before=before, after=after)
    return client


def new_name(written: str, *, but: UUID | None = None) -> str:
    """A name for a client in its stored form, without blanks around it and in NFC.

    Raises ``InvalidRequest`` for none, for signs that cannot be seen or turn a line around, and for one that looks like
    another client's: operators tell clients by name, and imports find them by it. Needs a transaction.
    """
    name = normalize("NFC", written.strip())
    if not name.strip(f"{JOINERS} "):
        raise InvalidRequest(errors=[Fault("/name", "required", "A client needs a name.")])
    if any(category(each) in UNSEEN and each not in JOINERS for each in name):
        detail = "A name is one line without invisible characters, or any that change the direction of text."
        raise InvalidRequest(errors=[Fault("/name", "invalid_characters", detail)])
    lock_until_commit("names of clients")
    others = alike(name)
    if (others.exclude(pk=but) if but else others).exists():
        detail = (
            "A client with this name already exists, perhaps with different capitals or spaces."
        )
        raise InvalidRequest(errors=[Fault("/name", "unique", detail)])
    return name


def set_alert_email(*, client_id: UUID, email: str, by: Actor, now: datetime) -> Client:
    """Names who is mailed when one of the client's people has used up a monthly cap; empty: operators alone.

    Raises ``InvalidRequest`` for an invalid email.
    """
    named = email.strip().lower()
    if named and not is_email(named):
        raise InvalidRequest(errors=[Fault("/email", "invalid", "This is not an email address.")])
    with transaction.atomic():
        client = _locked(client_id)
        before, after = {"alert_email": client.alert_email}, {"alert_email": named}
        if before != after:
            client.alert_email = named
            client.save(update_fields=["alert_email"])
            record("client:alert_email_set", client, by=by, now=now, before=before, after=after)
    return client


def set_notes(
    *,
    client_id: UUID,
    shown: Mapping[str, Any] | None = None,
    by: Actor,
    now: datetime,
    **inputs: Unpack[ClientNotes],
) -> Client:
    """Changes the notes that are given. The event names the fields and not what they say: the audit log is kept.

    Raises ``InvalidRequest`` for text that is too long or has signs that cannot be seen, and ``ChangedMeanwhile`` if a
    changed note is not as it was ``shown``.
    """
    written = {name: _note(text) for name, text in inputs.items()}
    if faults := [fault for name, text in written.items() for fault in _faults(name, text)]:
        raise InvalidRequest(errors=faults)
    with transaction.atomic():
        client = _locked(client_id)
        present = {name: getattr(client, name) for name in ClientNotes.__annotations__}
        seen = shown and {name: _note(str(text or "")) for name, text in shown.items()}
        changed = change(present=present, shown=seen, given=written)
        fields = [name for name, text in changed.items() if text != present[name]]
        if fields:
            for name in fields:
                setattr(client, name, changed[name])
            client.save(update_fields=fields)
            after = {"fields": [LABELS[name] for name in fields]}
            record("client:notes_set", client, by=by, now=now, after=after)
    return client


def _note(written: Any) -> str:
    return normalize("NFC", str(written).replace("\r\n", "\n").strip())


def _faults(name: str, text: str) -> list[Fault]:
    field: Any = Client._meta.get_field(name)  # noqa: SLF001 - Django's documented API
    most: int = field.max_length
    if len(text) > most:
        return [Fault(f"/{name}", "too_long", f"At most {most:,} characters.")]
    lines = "\n\t" if name == "notes" else ""
    if any(category(each) in UNSEEN and each not in JOINERS + lines for each in text):
        detail = "No invisible characters, and none that change the direction of text."
        return [Fault(f"/{name}", "invalid_characters", detail)]
    return []


def delete_client(*, client_id: UUID, reason: str, by: Actor, now: datetime) -> None:
    """Deletes a client and its licence. Raises ``ClientHasPeople`` while people belong to it."""
    check_reason(reason)
    with transaction.atomic():
        client = _locked(client_id)
        try:
            client.delete()
        except ProtectedError:
            raise ClientHasPeople from None
        record("client:deleted", client.name, by=by, now=now, target_id=client_id, reason=reason)


def _locked(client_id: UUID) -> Client:
    return Client.objects.select_for_update(no_key=True).get(pk=client_id)
