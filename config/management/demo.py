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
from licensing.plans import PlanTerms, change_plan
from llmproxy.models import LanguageModel
from llmproxy.offering import write_route

CLIENT = "Demo Company"
APP = "notes"
PERSON = "ada@demo.test"
OPERATOR = "operator@demo.test"


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
        for name in (settings.LLM_DEFAULT_MODEL, "stand-in-large"):
            model, _ = LanguageModel.objects.get_or_create(
                name=name, defaults={"provider_name": name}
            )
            write_route(model, now=now)
    published = settings.PUBLISH_SECRETS.listed()
    return Demo(
        base_url=settings.BASE_URL,
        email=PERSON,
        password=password,
        operator_email=OPERATOR,
        operator_password=operator_password,
        publish_secret=published[0] if published else "",
    )


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
