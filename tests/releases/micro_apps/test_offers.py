"""Versions offered to a client, and operators' changes to that."""

import base64
from datetime import datetime
from hashlib import sha256
from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction
from django.test.utils import CaptureQueriesContext
from rest_framework.test import APIClient

from accounts.audit import Actor
from accounts.models import AuditEvent, Client
from config.platform.problems.problem import InvalidRequest
from licensing.licences import create_client, set_operator_status, set_terms
from licensing.models import Licence, Plan, Standing
from releases.micro_apps.channels import StillOffered, move_channel, pin, unpin, withdraw
from releases.micro_apps.offers import NoSuchVersion, offered
from releases.models import AppChannel, AppPin, AppVersion
from tests.releases.micro_apps.conftest import Apps

pytestmark = pytest.mark.django_db


@pytest.fixture
def versions(apps: Apps) -> dict[str, AppVersion]:
    return {number: apps.version(number) for number in ("1.0.0", "1.1.0", "2.0.0-beta.1")}


@pytest.fixture
def entitled(organisation: Client, plan: Plan, by: Actor, now: datetime) -> Client:
    licence = Licence.objects.get(client=organisation)
    set_terms(licence_id=licence.pk, plan=plan, entitlements=["notes"], reason="x", by=by, now=now)
    return organisation


def ask(client: Client, channel: str = "stable", slug: str = "notes") -> tuple[str, str]:
    licence = Licence.objects.get(client=client)
    offer = offered(slug=slug, client_id=client.pk, plan_id=licence.plan_id, channel=channel)
    return offer.version, offer.chosen_by


class TestOrder:
    def test_a_channel_offers_what_operators_have_moved_it_to(
        self, versions: dict[str, AppVersion], organisation: Client, by: Actor, now: datetime
    ) -> None:
        with pytest.raises(NoSuchVersion):
            ask(organisation)
        for name, number in (("stable", "1.0.0"), ("beta", "1.1.0")):
            move_channel(name=name, version_id=versions[number].pk, reason="Tried.", by=by, now=now)
        assert ask(organisation) == ("1.0.0", "channel")
        assert ask(organisation, "beta") == ("1.1.0", "channel")
        assert ask(organisation, "latest") == ("2.0.0-beta.1", "channel")

    def test_a_pin_of_the_client_comes_before_one_of_its_plan_and_both_before_a_channel(
        self,
        versions: dict[str, AppVersion],
        organisation: Client,
        plan: Plan,
        by: Actor,
        now: datetime,
    ) -> None:
        said = {"reason": "Agreed.", "by": by, "now": now}
        move_channel(name="stable", version_id=versions["2.0.0-beta.1"].pk, **said)
        pin(version_id=versions["1.1.0"].pk, plan_id=plan.pk, **said)
        assert ask(organisation) == ("1.1.0", "plan")
        held = pin(version_id=versions["1.0.0"].pk, client_id=organisation.pk, **said)
        assert ask(organisation) == ask(organisation, "latest") == ("1.0.0", "client")
        other = create_client(name="Other", plan=plan, by=by, now=now)
        assert ask(other) == ("1.1.0", "plan")
        unpin(pin_id=held.pk, **said)
        assert ask(organisation) == ("1.1.0", "plan")

    def test_an_app_nobody_published_offers_nothing(self, organisation: Client) -> None:
        with pytest.raises(NoSuchVersion):
            ask(organisation, slug="unheard-of")

    def test_an_offer_takes_one_query(
        self, versions: dict[str, AppVersion], organisation: Client
    ) -> None:
        plan_id = Licence.objects.get(client=organisation).plan_id
        with CaptureQueriesContext(connection) as queries:
            offered(slug="notes", client_id=organisation.pk, plan_id=plan_id, channel="latest")
        assert len(queries) == 1


class TestDecisions:
    def test_each_says_why_and_is_audited(
        self, versions: dict[str, AppVersion], organisation: Client, by: Actor, now: datetime
    ) -> None:
        said = {"reason": "A reason.", "by": by, "now": now}
        move_channel(name="beta", version_id=versions["1.0.0"].pk, **said)
        move_channel(name="beta", version_id=versions["1.1.0"].pk, **said)
        held = pin(version_id=versions["1.0.0"].pk, client_id=organisation.pk, **said)
        unpin(pin_id=held.pk, **said)
        withdraw(version_id=versions["1.0.0"].pk, **said)
        events = AuditEvent.objects.filter(reason="A reason.").order_by("id")
        assert [event.action for event in events] == [
            "app:channel_moved",
            "app:channel_moved",
            "app:pinned",
            "app:unpinned",
            "app:withdrawn",
        ]
        assert (events[1].before, events[1].after) == ({"version": "1.0.0"}, {"version": "1.1.0"})
        assert events[2].after == {"client": organisation.name, "version": "1.0.0"}

    def test_nothing_changes_without_a_reason(
        self, versions: dict[str, AppVersion], by: Actor, now: datetime
    ) -> None:
        with pytest.raises(InvalidRequest):
            move_channel(name="stable", version_id=versions["1.0.0"].pk, reason=" ", by=by, now=now)
        assert not AppChannel.objects.filter(name="stable").exists()

    def test_an_offered_version_cannot_be_withdrawn_nor_a_withdrawn_one_offered(
        self, versions: dict[str, AppVersion], organisation: Client, by: Actor, now: datetime
    ) -> None:
        said = {"reason": "It crashes.", "by": by, "now": now}
        with pytest.raises(StillOffered) as refusal:
            withdraw(version_id=versions["2.0.0-beta.1"].pk, **said)
        assert "the channel latest" in refusal.value.errors[0].detail
        withdraw(version_id=versions["1.0.0"].pk, **said)
        for choose in (
            lambda: move_channel(name="stable", version_id=versions["1.0.0"].pk, **said),
            lambda: pin(version_id=versions["1.0.0"].pk, client_id=organisation.pk, **said),
        ):
            with pytest.raises(InvalidRequest):
                choose()

    def test_a_pin_is_for_a_client_or_for_a_plan(
        self,
        versions: dict[str, AppVersion],
        organisation: Client,
        plan: Plan,
        by: Actor,
        now: datetime,
    ) -> None:
        version = versions["1.0.0"].pk
        for whom in ({}, {"client_id": organisation.pk, "plan_id": plan.pk}):
            with pytest.raises(InvalidRequest):
                pin(version_id=version, reason="x", by=by, now=now, **whom)


class TestInvariants:
    """Invariants that neither code nor SQL can break."""

    def refused(self, statement: str, *values: Any) -> None:
        def tried() -> None:
            with transaction.atomic(), connection.cursor() as cursor:
                cursor.execute(statement, values)
                cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")

        with pytest.raises(IntegrityError):
            tried()

    def test_a_channel_has_a_version_of_its_own_app(
        self, versions: dict[str, AppVersion], apps: Apps
    ) -> None:
        other = apps.version("1.0.0", slug="sheets")
        self.refused(
            "UPDATE releases_appchannel SET version_id = %s WHERE app_id = 'notes'", other.pk
        )

    def test_a_pin_too(
        self,
        versions: dict[str, AppVersion],
        apps: Apps,
        organisation: Client,
        by: Actor,
        now: datetime,
    ) -> None:
        other = apps.version("1.0.0", slug="sheets")
        pin(version_id=versions["1.0.0"].pk, client_id=organisation.pk, reason="x", by=by, now=now)
        self.refused("UPDATE releases_apppin SET version_id = %s", other.pk)

    def test_a_client_has_one_pin_for_an_app(
        self, versions: dict[str, AppVersion], organisation: Client, by: Actor, now: datetime
    ) -> None:
        for number in ("1.0.0", "1.1.0"):
            pin(
                version_id=versions[number].pk,
                client_id=organisation.pk,
                reason="x",
                by=by,
                now=now,
            )
        assert AppPin.objects.get().version.version == "1.1.0"
        self.refused(
            "INSERT INTO releases_apppin (app_id, version_id, client_id, reason, pinned_at, pinned_by)"
            " SELECT app_id, version_id, client_id, reason, pinned_at, pinned_by FROM releases_apppin"
        )

    def test_channels_have_the_three_names(self, versions: dict[str, AppVersion]) -> None:
        self.refused("UPDATE releases_appchannel SET name = 'nightly'")

    def test_a_version_is_withdrawn_for_a_reason(self, versions: dict[str, AppVersion]) -> None:
        self.refused("UPDATE releases_appversion SET withdrawn_at = now()")


class TestOverHttp:
    def get(self, api: APIClient, path: str = "/v1/apps/notes/manifest", **headers: str) -> Any:
        return api.get(path, headers=headers)

    def test_a_manifest_names_what_was_published(
        self, signed_in: APIClient, entitled: Client, versions: dict[str, AppVersion], apps: Apps
    ) -> None:
        response = self.get(signed_in, "/v1/apps/notes/manifest?channel=latest")
        assert response.status_code == 200
        path = "apps/notes/2.0.0-beta.1/bundle.tar.gz"
        assert response.json() == {
            "version": "2.0.0-beta.1",
            "url": f"https://cdn.shell.test/{path}",
            "sig": base64.b64encode((apps.files / f"{path}.minisig").read_bytes()).decode(),
            "sha256": sha256((apps.files / path).read_bytes()).hexdigest(),
        }
        again = self.get(
            signed_in,
            "/v1/apps/notes/manifest?channel=latest",
            **{"If-None-Match": response["ETag"]},
        )
        assert (again.status_code, again.content) == (304, b"")
        assert response["Cache-Control"] == "private, no-cache"

    def test_the_default_channel_is_stable(
        self,
        signed_in: APIClient,
        entitled: Client,
        versions: dict[str, AppVersion],
        by: Actor,
        now: datetime,
    ) -> None:
        response = self.get(signed_in)
        assert (response.status_code, response.json()["code"]) == (404, "not_found")
        move_channel(name="stable", version_id=versions["1.0.0"].pk, reason="x", by=by, now=now)
        assert self.get(signed_in).json()["version"] == "1.0.0"

    @pytest.mark.parametrize("slug", ["sheets", "unheard-of", "UPPER", "%2e%2e"])
    def test_an_app_outside_the_entitlements_is_refused_known_or_not(
        self, signed_in: APIClient, entitled: Client, apps: Apps, slug: str
    ) -> None:
        apps.publish(slug="sheets")
        response = self.get(signed_in, f"/v1/apps/{slug}/manifest")
        assert (response.status_code, response.json()["code"]) == (403, "not_entitled")

    def test_a_suspended_client_gets_none(
        self,
        signed_in: APIClient,
        entitled: Client,
        versions: dict[str, AppVersion],
        by: Actor,
        now: datetime,
    ) -> None:
        licence = Licence.objects.get(client=entitled)
        set_operator_status(
            licence_id=licence.pk, status=Standing.SUSPENDED, reason="x", by=by, now=now
        )
        response = self.get(signed_in)
        assert (response.status_code, response.json()["code"]) == (403, "licence_suspended")

    def test_a_channel_that_is_none_is_named(self, signed_in: APIClient, entitled: Client) -> None:
        response = self.get(signed_in, "/v1/apps/notes/manifest?channel=nightly")
        assert response.status_code == 400
        assert response.json()["errors"][0]["pointer"] == "/channel"

    def test_the_list_requires_a_token(self, api: APIClient) -> None:
        assert self.get(api).status_code == 401
