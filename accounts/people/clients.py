"""Rules for existing customer organisations. Creation includes the licence and is in ``licensing``."""

from datetime import datetime
from unicodedata import category, normalize
from uuid import UUID

from django.db import transaction
from django.db.models import ProtectedError

from accounts.audit import Actor, check_reason, record
from accounts.models import Client
from accounts.people.client_names import alike
from accounts.people.emails import is_email
from config.platform.db.advisory_locks import lock_until_commit
from config.platform.problems.problem import Fault, InvalidRequest

# Control and format characters, separators of lines and paragraphs, halves of characters.
UNSEEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
# Persian and Indic scripts write words with them.
JOINERS = "\u200c\u200d"


class ClientHasPeople(InvalidRequest):
    default_detail = (
        "People belong to this client. Move or delete them first, or suspend its licence."
    )


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
        detail = "A name has one line, and no signs that cannot be seen or change the direction."
        raise InvalidRequest(errors=[Fault("/name", "invalid_characters", detail)])
    lock_until_commit("names of clients")
    others = alike(name)
    if (others.exclude(pk=but) if but else others).exists():
        detail = "There is a client of this name already, perhaps in other letter case or with other blanks."
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
