"""The demo of a local run: one client, one person, one operator, one key. Keeps existing rows."""

import secrets
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction

from accounts.audit import Actor
from accounts.keys.signing_keys import rotate_signing_key
from accounts.models import Client, SigningKey, User
from licensing.licences import create_client, set_terms
from licensing.models import Plan
from licensing.plans import PlanTerms, add_plan, change_plan
from llmproxy.catalogue.offering import write_route
from llmproxy.catalogue.providers import ProviderTerms, add_provider, change_provider
from llmproxy.catalogue.routing import RouteTerms, add_route
from llmproxy.models import LanguageModel, Provider
from releases.micro_apps.channels import move_channel
from releases.models import AppChannel, AppVersion

CLIENT = "Demo Company"
APP = "notes"
PERSON = "ada@demo.test"
OPERATOR = "operator@demo.test"
# For editors and agents, which send 50 to 150 KB per call, nearly all of it cached. Without an input cap there is no
# daily limit.
CODING = PlanTerms(
    name="Coding",
    entitlements=[],
    monthly_input_tokens=None,
    monthly_output_tokens=2_000_000,
    daily_tokens=None,
    allows_keys=True,
    cached_input_percent=10,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Demo:
    """The address and the credentials of the demo."""

    base_url: str
    email: str
    password: str = field(repr=False)
    operator_email: str
    operator_password: str = field(repr=False)
    publish_secret: str = field(repr=False)


def seed(*, known: Demo | None, now: datetime) -> Demo:
    """Creates the demo. ``known`` is the demo of the previous run, whose passwords stay valid."""
    by = Actor.command("seed_demo")
    password = known.password if known else secrets.token_urlsafe(12)
    operator_password = known.operator_password if known else secrets.token_urlsafe(12)
    with transaction.atomic():
        if not SigningKey.objects.exists():
            rotate_signing_key(publish_ahead=timedelta(0), by=by, now=now)
        if not Plan.objects.filter(name=CODING.name).exists():
            add_plan(terms=CODING, by=by, now=now)
        client = Client.objects.filter(name=CLIENT).first()
        if client is None:
            plan = Plan.objects.get(name="Starter")
            terms = replace(PlanTerms.of(plan), allows_keys=True)
            plan = change_plan(
                plan_id=plan.pk, terms=terms, reason="For editors of the demo.", by=by, now=now
            )
            client = create_client(name=CLIENT, plan=plan, by=by, now=now)
            set_terms(
                licence_id=client.licence.pk,
                plan=plan,
                entitlements=[APP],
                reason="Something to publish an app for.",
                by=by,
                now=now,
            )
        _person(PERSON, password, client=client)
        _person(OPERATOR, operator_password)
        for name in (*_models(), "stand-in-embedding"):
            model, _ = LanguageModel.objects.get_or_create(
                name=name, defaults={"provider_name": name}
            )
            write_route(model, now=now)
        _offer_app(by=by, now=now)
    published = settings.PUBLISH_SECRETS.listed()
    return Demo(
        base_url=settings.BASE_URL,
        email=PERSON,
        password=password,
        operator_email=OPERATOR,
        operator_password=operator_password,
        publish_secret=published[0] if published else "",
    )


def add_second_provider(address: str, *, now: datetime) -> None:
    """Gives the models of the demo a second route, to a provider of Anthropic's dialect that accepts any key."""
    by = Actor.command("seed_demo")
    terms = ProviderTerms(name="second", dialect="anthropic", base_url=address)
    with transaction.atomic():
        provider = Provider.objects.filter(name=terms.name).first()
        if provider is None:
            provider = add_provider(terms=terms, key=secrets.token_urlsafe(), by=by, now=now)
        elif provider.base_url != address:
            change_provider(
                provider_id=provider.pk,
                terms=terms,
                key=secrets.token_urlsafe(),
                reason="The stand-in has another address in this run.",
                by=by,
                now=now,
            )
        for model in LanguageModel.objects.filter(name__in=_models()):
            if not model.routes.filter(provider=provider).exists():
                way = RouteTerms(provider_name=model.name, order=1, surfaces=[])
                add_route(model=model, provider=provider, terms=way, by=by, now=now)


def _offer_app(*, by: Actor, now: datetime) -> None:
    """Offers the app on the channel that shells ask for, once a version of it is published."""
    version = AppVersion.objects.filter(app=APP, stored_at__isnull=False, withdrawn_at=None).first()
    if version and not AppChannel.objects.filter(app=APP, name="stable").exists():
        reason = "Shells of the demo ask for it."
        move_channel(name="stable", version_id=version.pk, reason=reason, by=by, now=now)


def _models() -> tuple[str, str]:
    """Returns the models that generate text."""
    return settings.LLM_DEFAULT_MODEL, "stand-in-large"


def _person(email: str, password: str, *, client: Client | None = None) -> None:
    """Creates a demo person, or without a client an owner; resets the password of an existing one."""
    user = User.objects.filter(email=email).first()
    if user is None and client is None:
        User.objects.create_superuser(email, password)
    elif user is None:
        User.objects.create_user(email, password, client=client)
    elif not user.check_password(password):
        user.set_password(password)
        user.save(update_fields=["password"])
