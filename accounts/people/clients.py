"""Rules for existing customer organisations. Creation includes the licence and is in ``licensing``."""

from datetime import datetime
from uuid import UUID

from django.db import transaction
from django.db.models import ProtectedError

from accounts.audit import Actor, check_reason, record
from accounts.models import Client
from accounts.people.emails import is_email
from config.api.problems import Fault, InvalidRequest


class ClientHasPeople(InvalidRequest):
    default_detail = (
        "People belong to this client. Move or delete them first, or suspend its licence."
    )


class NoSuchClient(InvalidRequest):
    """A name or id that belongs to no client, or to several."""


def find_client(written: str) -> Client:
    """The client with a name, in any case, or an id. Raises ``NoSuchClient``."""
    named = written.strip()
    try:
        found = list(Client.objects.filter(pk=UUID(named)))
    except ValueError:
        found = list(Client.objects.filter(name__iexact=named)[:2])
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
    if not name.strip():
        raise InvalidRequest(errors=[Fault("/name", "required", "A client needs a name.")])
    with transaction.atomic():
        client = _locked(client_id)
        before = {"name": client.name}
        client.name = name.strip()
        client.save(update_fields=["name"])
        after = {"name": client.name}
        if before != after:
            record("client:renamed", client, by=by, now=now, before=before, after=after)
    return client


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
