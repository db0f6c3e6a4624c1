"""Adds and changes the providers of operators. ``default`` follows the settings (``LLM_*``) and is never changed here.

A key is stored encrypted, bound to the provider's name and address, and shown to nobody again.
"""

from dataclasses import asdict, dataclass, fields
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

from django.db import transaction
from environs import ValidationError

from accounts.audit import Actor, record
from config.platform.env.addresses import address_or_empty
from config.platform.problems.constraints import refused_as
from config.platform.problems.problem import Fault, InvalidRequest
from llmproxy.catalogue.member_names import ALL_IS_OLD, faults_of
from llmproxy.catalogue.setting_readers import API_KEY
from llmproxy.models import Provider
from usage.models import SpendLimit


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderTerms:
    """The settings of a provider by an operator; the address is in the form of its dialect's SDK.

    ``read_timeout`` is in seconds. None: as in the settings, or any number of calls.
    """

    name: str
    dialect: str
    base_url: str
    members: str = Provider.LISTED
    fetches: str = Provider.Fetches.ADDRESS
    limit_name: str = Provider.LimitName.ADDRESS
    calls_per_minute: int | None = None
    read_timeout: int | None = None


def add_provider(*, terms: ProviderTerms, key: str, by: Actor, now: datetime) -> Provider:
    """Adds a provider, with its key ("" where its server wants none). Raises ``InvalidRequest``."""
    with transaction.atomic():
        provider = _write(Provider(), terms, key=key)
        after = _audited(provider)
        record("provider:added", provider, by=by, now=now, after=after)
    return provider


def change_provider(
    *, provider_id: int, terms: ProviderTerms, key: str, reason: str, by: Actor, now: datetime
) -> Provider:
    """Changes a provider; running calls go on. An empty ``key`` keeps the one that it has.

    Raises ``InvalidRequest``: also for another name or address without the key, which is bound to both,
    and for another name while a spending limit has this one.
    """
    with transaction.atomic():
        provider = _locked(provider_id)
        before = _audited(provider)
        moves = (terms.name, terms.base_url) != (provider.name, provider.base_url)
        if moves and provider.api_key is not None and not key:
            sentence = "Enter the key again: it is bound to the provider's name and address."
            raise InvalidRequest(errors=[Fault("/api_key", "required", sentence)])
        if terms.name != provider.name and SpendLimit.objects.filter(provider=provider.name):
            sentence = (
                "It has a spending limit, which counts calls by this name. Remove the limit first."
            )
            raise InvalidRequest(errors=[Fault("/name", "limited", sentence)])
        provider = _write(provider, terms, key=key)
        after = {**_audited(provider), "new_key": bool(key)}
        record(
            "provider:changed", provider, by=by, now=now, reason=reason, before=before, after=after
        )
    return provider


def switch_provider(
    *, provider_id: int, on: bool, reason: str, by: Actor, now: datetime
) -> Provider:
    """Switches a provider on or off for the calls that start from then on."""
    with transaction.atomic():
        provider = _locked(provider_id)
        provider.is_on = on
        provider.save(update_fields=["is_on"])
        if on:
            record("provider:switched_on", provider, by=by, now=now, reason=reason)
        else:
            record("provider:switched_off", provider, by=by, now=now, reason=reason)
    return provider


def _locked(provider_id: int) -> Provider:
    return Provider.objects.select_for_update(no_key=True).get(pk=provider_id)


def _write(provider: Provider, terms: ProviderTerms, *, key: str) -> Provider:
    if Provider.DEFAULT in (provider.name, terms.name):
        sentence = "The provider “default” comes from the settings (LLM_*), and no other can have its name."
        raise InvalidRequest(errors=[Fault("/name", "invalid", sentence)])
    faults = _faults(terms.base_url, "/base_url", address_or_empty)
    parts = urlsplit("" if faults else terms.base_url)
    if (
        not (faults or terms.base_url)
        or parts.username is not None
        or parts.query
        or parts.fragment
    ):
        sentence = "Give only the address: no name, password, query or fragment."
        faults.append(Fault("/base_url", "invalid", sentence))
    for name in ("calls_per_minute", "read_timeout"):
        if getattr(terms, name) == 0:
            faults.append(Fault(f"/{name}", "min_value", "At least 1, or empty."))
    faults += [Fault("/members", "invalid", said) for said in faults_of(terms.members)]
    if terms.members.strip() == Provider.ALL and provider.members != Provider.ALL:
        faults.append(Fault("/members", "invalid", ALL_IS_OLD))
    if key:
        faults += _faults(key, "/api_key", API_KEY)
    if faults:
        raise InvalidRequest(errors=faults)
    for name, value in asdict(terms).items():
        setattr(provider, name, value)
    provider.base_url = terms.base_url.rstrip("/")
    is_all = provider.members.strip() == Provider.ALL
    provider.members_before = Provider.ALL if is_all else Provider.LISTED
    if key:
        provider.seal("api_key", key.encode())
    fault = Fault("/name", "unique", "A provider with this name already exists.")
    with refused_as(fault):
        provider.save()
    return provider


def _faults(value: str, pointer: str, check: Any) -> list[Fault]:
    try:
        check(value)
    except ValidationError as refused:
        return [Fault(pointer, "invalid", " ".join(map(str, refused.messages)))]
    return []


def _audited(provider: Provider) -> dict[str, Any]:
    """The provider's fields in the audit log, where its key never is."""
    terms = {each.name: getattr(provider, each.name) for each in fields(ProviderTerms)}
    return {**terms, "has_key": provider.api_key is not None}
