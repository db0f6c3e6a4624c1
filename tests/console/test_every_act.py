"""Every change that the console can make: by an act alone, and none without its event.

The acts are found, not listed, and their forms are filled by the kinds of their fields; so an act that is added
is tried here without being named.
"""

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django import forms
from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import models, transaction
from django.urls import reverse
from pytest_django.fixtures import Settings

from accounts.admin.fields import ClientField, PersonField
from accounts.audit import Actor
from accounts.models import AuditEvent, Authenticator, Role, User
from accounts.people.access import disable
from accounts.people.clients import rename_client
from accounts.people.users import add_user
from config.console.action_views import ActionAdmin
from config.console.actions import Action, BulkAction
from config.platform.acts import ACTS
from licensing.licences import create_client, set_operator_status
from licensing.models import HeldSuspension, Plan, Standing
from llmproxy.models import LanguageModel, Provider, Route
from releases.admin.levers import ChannelField, VersionField
from releases.models import (
    AppChannel,
    AppPin,
    AppVersion,
    MicroApp,
    Publication,
    Purge,
    ShellChannel,
    ShellRelease,
)
from tests.conftest import Browser
from tests.console.conftest import World, make_operator_of_a_client
from usage.models import SpendLimit
from usage.stops import stop_model_calls

pytestmark = pytest.mark.django_db

CANARY = "a canary of a passphrase"
REASON = "Somebody asked for it."
Found = tuple[Any, Action]


def acts() -> list[Found]:
    """Every act of every page, those that add a row included."""
    return [
        (console, act)
        for console in admin.site._registry.values()
        for act in (*console.row_actions, *filter(None, [console.add_action]))
    ]


def in_an_hour(field: Any, now: datetime) -> str:
    return f"{now + timedelta(hours=1):%Y-%m-%dT%H:%M}"


def some_file(field: Any, now: datetime) -> SimpleUploadedFile:
    return SimpleUploadedFile("people.csv", b"email\nnew-from-a-file@acme.test\n")


# By the kind of a field, the nearest first.
FILLED: dict[type[forms.Field], Callable[[Any, datetime], Any]] = {
    ClientField: lambda field, now: "Borealis <script>",
    PersonField: lambda field, now: (
        User.objects.filter(client__isnull=False, erased_at=None)[0].email
    ),
    ChannelField: lambda field, now: "stable",
    VersionField: lambda field, now: ShellRelease.objects.order_by("version")[0].version,
    forms.FileField: some_file,
    forms.EmailField: lambda field, now: "new-person@acme.test",
    forms.DateTimeField: in_an_hour,
    forms.ModelMultipleChoiceField: lambda field, now: [field.queryset.first().pk],
    forms.ModelChoiceField: lambda field, now: field.queryset.last().pk,
    forms.ChoiceField: lambda field, now: next(key for key, _ in field.choices if key),
    forms.IntegerField: lambda field, now: 123,
    forms.BooleanField: lambda field, now: "on",
    forms.Field: lambda field, now: "newly-written",
}
NAMED = {"reason": REASON, "emails": "new-person@acme.test"}


def filled(field: forms.Field, name: str, *, now: datetime) -> Any:
    """Something that a field of this kind takes."""
    if isinstance(field.widget, forms.PasswordInput):
        return CANARY
    kind = next(kind for kind in FILLED if isinstance(field, kind))
    return NAMED.get(name) or FILLED[kind](field, now)


# Input of forms that their fields do not imply, by model and act.
SAID: dict[str, Callable[[Any], dict[str, Any]]] = {
    "licence_customer": lambda licence: {"stripe_customer_id": "cus_NffrFeUfNV2Hib"},
    "licence_terms": lambda licence: {"entitlements": "notes"},
    "plan_add": lambda plan: {"cached_input_percent": "10", "entitlements": "notes"},
    "plan_terms": lambda plan: {"cached_input_percent": "10", "entitlements": "notes"},
    "provider_add": lambda provider: {"base_url": "https://fourth.test"},
    "provider_terms": lambda provider: {"base_url": provider.base_url},
    "route_way": lambda route: {"provider_name": route.provider_name},
    "route_factor": lambda route: {"factor": "1.5"},
    "shellchannel_raise_share": lambda channel: {"share": "50"},
    "user_roles": lambda user: {"roles": "auditor"},
    "user_erase": lambda user: {"email": user.email},
    # In place of the plan's numbers.
    "override_add": lambda override: {"on_top": ""},
}


def arranged(world: World, by: Actor, now: datetime) -> None:
    """Adds the rows that acts need and the world lacks."""
    waits = add_user(email="waits@acme.test", client=world.client, by=by, now=now)
    make_operator_of_a_client(waits)
    User.objects.create(email="free@shell.test", password=world.person.password)
    another = User.objects.create_user("another@shell.test", is_staff=True)
    another.put_roles({Role.RELEASE})
    Authenticator.objects.create(user=another, name="Phone", key=b"sealed")
    add_user(email="waits-too@acme.test", client=world.client, by=by, now=now)
    gone = add_user(email="gone@acme.test", client=world.client, by=by, now=now)
    disable(user_id=gone.pk, reason="x", by=by, now=now)
    stop_model_calls(user_id=gone.pk, reason="x", ends_at=None, by=by, now=now)
    HeldSuspension.objects.create(
        job="sync_subscriptions", licence_ids=[1], clients=2, noticed_at=now
    )
    app_versions(now)
    owing = create_client(name="Owing", plan=Plan.objects.first(), by=by, now=now)  # type: ignore[arg-type]
    licence_id = owing.licence.pk
    set_operator_status(
        licence_id=licence_id, status=Standing.SUSPENDED, reason="x", by=by, now=now
    )
    unused = create_client(name="Unused", plan=Plan.objects.first(), by=by, now=now)  # type: ignore[arg-type]
    rename_client(client_id=unused.pk, name="Unused still", by=by, now=now)
    _steered(now)
    provider = Provider.objects.get()
    for name in ("learned", "set"):
        model = LanguageModel.objects.create(name=name, provider_name=name, is_on=name == "set")
        Route.objects.create(
            model=model,
            provider=provider,
            provider_name=name,
            factor_is_set=name == "set",
            prices_are_set=name == "set",
        )
    second = Provider.objects.create(name="second", base_url="https://second.test", is_on=False)
    Route.objects.create(model=model, provider=second, provider_name="theirs", order=1)
    Provider.objects.create(name="third", base_url="https://third.test")
    for name, passes_on in (("fourth", None), ("fifth", now.date())):
        reached = {"day_spent": 9, "day_warned_at": now, "day_reached_at": now}
        spend_limit(name, now, passes_on=passes_on, **reached)


def spend_limit(provider: str, now: datetime, **state: Any) -> None:
    """A limit of a provider that is gone, which calls do not meet and no act renames."""
    spans = {"day": now.date(), "month": now.date().replace(day=1), "counted_at": now}
    SpendLimit.objects.create(provider=provider, daily=9, **spans, **state)


def app_versions(now: datetime) -> None:
    """An app with a version on beta, one that is pinned, and one that nothing names."""
    app = MicroApp.objects.create(slug="notes", created_at=now)
    tried, pinned, free = (
        AppVersion.objects.create(
            app=app, version=number, sha256="0" * 64, size=1, signature=b"s", signed_with="0" * 16,
            published_at=now, published_by="x", stored_at=now,
        )
        for number in ("1.2.0", "1.1.0", "1.0.0")
    )  # fmt: skip
    AppChannel.objects.create(app=app, name="beta", version=tried, moved_at=now, moved_by="x")
    AppPin.objects.create(
        app=app, version=pinned, plan=Plan.objects.first(), reason="x", pinned_at=now, pinned_by="x"
    )
    assert not free.channels.exists()


def _steered(now: datetime) -> None:
    """A channel that can be rolled back and whose purge fails, one that is halted, one with a release for a share."""
    ShellChannel.objects.create(name="halted", halted_at=now)
    current = ShellRelease.objects.get()
    newer = ShellRelease.objects.create(
        channel=current.channel,
        version="1.2.4",
        manifest=b"{}",
        manifest_sha256="1" * 64,
        platforms=current.platforms,
        published_at=now,
        published_by="pipeline",
    )
    publication = Publication.objects.create(
        release=newer, signature=b"s", signed_at=now, published_at=now, stored_at=now
    )
    Purge.objects.create(
        channel=current.channel, publication=publication, asked_at=now, due_at=now, attempts=1
    )
    careful = ShellRelease.objects.create(
        channel=ShellChannel.objects.create(name="careful"),
        version="2.0.0",
        manifest=b"{}",
        manifest_sha256="2" * 64,
        platforms=current.platforms,
        published_at=now,
        published_by="pipeline",
    )
    Publication.objects.create(
        release=careful, signature=b"s", signed_at=now, published_at=now, share=1
    )


def targets(console: Any, act: Action, request: Any) -> Iterator[Any]:
    """The rows that an act is offered for."""
    for row in console.model._default_manager.all():
        if console.available(request, act, row):
            yield row


def attempt(browser: Browser, address: str, act: Action, row: Any, *, now: datetime) -> Any:
    """Fills in the page of an act and sends it, and the page after it, where there is one."""
    shown = browser.get(address)
    for _ in range(2):
        form = shown.context["form"]
        given = {name: form.initial.get(name) for name in form.fields}
        for name, field in form.fields.items():
            if not isinstance(field.widget, forms.HiddenInput):
                given[name] = filled(field, name, now=now)
        given |= SAID.get(address.split("/")[3] + "_" + act.name, lambda row: {})(row)
        shown = browser.post(
            address, {name: value for name, value in given.items() if value is not None}
        )
        # Elsewhere, a page that asks nothing more, or one that tells of a failure is the end of it.
        if shown.status_code == 302 or "form" not in shown.context:
            return shown
        if any(message.level_tag == "error" for message in shown.context["messages"]):
            return shown
        assert not shown.context["form"].errors, (address, shown.context["form"].errors)
    raise AssertionError(f"{address} asks again and again")


def address_of(console: Any, act: Action, row: Any) -> str:
    label = f"{console.opts.app_label}_{console.opts.model_name}_{act.name}"
    return reverse(f"admin:{label}", args=[row.pk] if row is not None else [])


def test_rows_are_changed_by_acts_alone() -> None:
    for model, console in admin.site._registry.items():
        assert isinstance(console, ActionAdmin), model
        assert (console.list_editable, tuple(console.inlines), tuple(console.actions)) == (
            (),
            (),
            (),
        )
        assert not console.has_change_permission(None)
        assert not console.has_delete_permission(None)
        offered = {act.name for act in console.row_actions if isinstance(act, BulkAction)}
        superuser = type(
            "Request", (), {"user": User(is_superuser=True, is_staff=True), "GET": {}}
        )()
        assert set(console.get_actions(superuser)) == offered, model
        for inherited in (
            "save_model",
            "delete_model",
            "delete_queryset",
            "save_related",
            "log_change",
        ):
            assert getattr(type(console), inherited) is getattr(admin.ModelAdmin, inherited), model


def declared_act(right: str) -> str:
    """The action of the audit log that an app declares of an act of the console."""
    return next(act.action for act in ACTS for each in act.rights if each.name == right)


def written(browser: Browser, request: Any, found: Found, *, now: datetime) -> None:
    """Does an act on the first row that it is offered for, and looks at what was written down."""
    console, act = found
    row = None
    if act is not console.add_action:
        row = next(targets(console, act, request), None)
        assert row is not None, "no row of this world allows it: arrange one"
    newest = AuditEvent.objects.order_by("-pk").values_list("pk", flat=True)[0]
    form = act.form(row, None, by=request)
    attempt(browser, address_of(console, act, row), act, row, now=now)

    events = list(AuditEvent.objects.filter(pk__gt=newest))
    assert declared_act(console.right(act)) in {event.action for event in events}
    for event in events:
        assert (event.actor, event.actor_id) == (request.user.email, request.user.pk), event
        assert (event.address, event.request_id) == (Browser.address, Browser.request_id), event
        assert event.target or event.target_id, event
        assert CANARY not in str(vars(event)), event
    assert "reason" not in form.fields or REASON in {event.reason for event in events}


def test_every_act_is_written_down_with_who_where_and_why(
    console: Browser,
    operator: User,
    rf: Any,
    world: World,
    by: Actor,
    now: datetime,
    settings: Settings,
    tmp_path: Path,
) -> None:
    settings.CDN_PURGE = "purge"
    files = {"BACKEND": "releases.delivery.storage.Files", "OPTIONS": {"location": str(tmp_path)}}
    settings.STORAGES = {**settings.STORAGES, "default": files}
    request = rf.get("/admin/")
    request.user = operator
    arranged(world, by, now)
    failed = {}
    for found in acts():
        undone = transaction.savepoint()
        try:
            written(console, request, found, now=now)
        except Exception as error:  # noqa: BLE001 - whatever it is, the others are tried too
            failed[f"{found[0].opts.model_name}: {found[1].name}"] = repr(error)
        transaction.savepoint_rollback(undone)
    assert failed == {}, "\n".join(f"{act}: {why}" for act, why in failed.items())
    assert not LogEntry.objects.exists()


def test_no_field_of_the_log_could_hold_a_secret() -> None:
    kinds = {field.name: type(field) for field in AuditEvent._meta.get_fields()}
    assert not [name for name, kind in kinds.items() if issubclass(kind, models.BinaryField)]
    assert set(kinds) == {
        "id", "at", "action", "actor", "actor_id", "target", "target_id", "address", "request_id",
        "reason", "before", "after",
    }  # fmt: skip
