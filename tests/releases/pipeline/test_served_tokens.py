"""An identity token and the one body that it serves: by the rule, over HTTP, and at the same moment."""

import json
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from django.db import IntegrityError
from pytest_django.fixtures import Settings

from accounts.models import AuditEvent
from config.platform.env.secret_files import Secret
from releases.models import ServedToken, ShellRelease
from releases.pipeline.identity_tokens import OneTime
from releases.pipeline.issuer_keys import keys_of
from releases.pipeline.served_tokens import TokenServed, serve
from tests.races import race
from tests.releases.conftest import Pipeline
from tests.releases.issuer import AUDIENCE, REQUIRED, Issuer
from tests.standins.cdn import Cdn, running_cdn

pytestmark = pytest.mark.django_db

ONE, OTHER = "1" * 64, "2" * 64


def token(now: datetime, id_: str = "a" * 64) -> OneTime:
    return OneTime(id_sha256=id_, ends=now + timedelta(minutes=5))


def test_the_same_body_may_come_again_and_another_may_not(now: datetime) -> None:
    for _ in range(3):
        serve(token(now), body_sha256=ONE, now=now)
    with pytest.raises(TokenServed):
        serve(token(now), body_sha256=OTHER, now=now)
    serve(token(now, "b" * 64), body_sha256=OTHER, now=now)


def test_a_check_without_keep_does_not_use_the_token(now: datetime) -> None:
    serve(token(now), body_sha256=ONE, now=now, keep=False)
    assert not ServedToken.objects.exists()
    serve(token(now), body_sha256=OTHER, now=now)
    with pytest.raises(TokenServed):
        serve(token(now), body_sha256=ONE, now=now, keep=False)


def test_a_token_is_remembered_for_longer_than_it_is_taken(now: datetime) -> None:
    serve(token(now), body_sha256=ONE, now=now)
    late = now + timedelta(minutes=6)
    serve(token(late, "b" * 64), body_sha256=ONE, now=late)
    assert ServedToken.objects.count() == 2
    later = late + timedelta(seconds=1)
    serve(token(later, "c" * 64), body_sha256=ONE, now=later)
    assert set(ServedToken.objects.values_list("pk", flat=True)) == {"b" * 64, "c" * 64}


@pytest.mark.django_db(transaction=True)
def test_a_token_serves_one_of_many_bodies_at_once(now: datetime) -> None:
    for round_ in range(5):
        mine = token(now, f"{round_}" * 64)
        bodies = [f"{each}" * 64 for each in range(8)]
        results = race(*[partial(serve, mine, body_sha256=each, now=now) for each in bodies])
        assert results.count(None) == 1
        refused = [each for each in results if each is not None]
        assert all(isinstance(each, TokenServed) for each in refused)
        served = ServedToken.objects.get(pk=mine.id_sha256)
        assert served.body_sha256 == bodies[results.index(None)]


def test_only_lower_case_hashes_of_tokens_are_stored(now: datetime) -> None:
    row = ServedToken(id_sha256="A jti", body_sha256=ONE, forget_at=now)
    with pytest.raises(IntegrityError, match="served_token_sums_are_lower_hex"):
        row.save(force_insert=True)


@pytest.fixture
def issuer(settings: Settings) -> Any:
    keys_of.cache_clear()
    with running_cdn() as host:
        issuer = Issuer(host)
        settings.PUBLISH_OIDC_ISSUER = issuer.url
        settings.PUBLISH_OIDC_AUDIENCE = AUDIENCE
        settings.PUBLISH_OIDC_CLAIMS = dict(REQUIRED)
        yield issuer


def refused(response: Any) -> list[tuple[str, str]]:
    body = json.loads(response.content)
    assert (response.status_code, body["code"]) == (401, "invalid_access_token")
    assert response["WWW-Authenticate"].startswith("Bearer")
    return [(each["pointer"], each["code"]) for each in body.get("errors", [])]


def test_a_pipeline_without_any_secret_publishes_by_its_token(
    pipeline: Pipeline, issuer: Issuer, settings: Settings
) -> None:
    settings.PUBLISH_SECRETS = Secret("PUBLISH_SECRETS", "")
    now, release = datetime.now(UTC), pipeline.release("1.0.0")
    given = issuer.token(now)
    assert pipeline.post(release, secret=given).status_code == 201
    # Its answer was lost, and it asks again.
    assert pipeline.post(release, secret=given).status_code == 200
    row = ShellRelease.objects.get()
    assert row.published_by == "release pipeline of acme/shell, run 17.2 at refs/heads/main"
    assert refused(pipeline.post(pipeline.release("1.1.0"), secret=given)) == [("/jti", "served")]
    newer = pipeline.release("1.1.0")
    assert pipeline.post(newer, secret=issuer.token(now)).status_code == 201
    actions = AuditEvent.objects.order_by("id").values_list("action", "actor")
    assert [action for action, _ in actions] == [
        "release:published",
        "release:repeated",
        "release:refused",
        "release:published",
    ]
    assert {actor for _, actor in actions} == {row.published_by}
    said = json.dumps([[e.before, e.after, e.target, e.reason] for e in AuditEvent.objects.all()])
    assert not any(part in said for part in given.split("."))


def test_secrets_go_on_beside_an_issuer(pipeline: Pipeline, issuer: Issuer) -> None:
    assert pipeline.post(pipeline.release("1.0.0")).status_code == 201
    assert refused(pipeline.post(pipeline.release("1.1.0"), secret="wrong")) == []
    assert refused(pipeline.post(pipeline.release("1.1.0"), secret="not.a.token")) == []
    assert issuer.host.asked == []


def test_a_dry_run_leaves_the_token_for_the_publish(pipeline: Pipeline, issuer: Issuer) -> None:
    given, draft = issuer.token(datetime.now(UTC)), pipeline.release("1.0.0")
    assert pipeline.post(draft, "ch=stable&dry_run=true", secret=given).status_code == 200
    assert not ServedToken.objects.exists()
    assert pipeline.post(pipeline.release("1.1.0"), secret=given).status_code == 201
    other = pipeline.post(draft, "ch=stable&dry_run=true", secret=given)
    assert refused(other) == [("/jti", "served")]


def test_a_stolen_token_alone_publishes_nothing(pipeline: Pipeline, issuer: Issuer) -> None:
    thief = Pipeline(type(pipeline.signer)(), pipeline.cdn, pipeline.files)
    given = issuer.token(datetime.now(UTC))
    response = pipeline.post(thief.release("6.6.6"), secret=given)
    body = json.loads(response.content)
    assert (response.status_code, body["errors"][0]["code"]) == (400, "wrong_key")
    assert pipeline.nothing_stored()
    assert not ShellRelease.objects.exists()


def test_another_pipeline_of_the_same_issuer_is_refused_and_told_of(
    pipeline: Pipeline, issuer: Issuer, cdn: Cdn
) -> None:
    other = issuer.token(datetime.now(UTC), repository="evil/fork", event_name="pull_request")
    response = pipeline.post(pipeline.release("1.0.0"), secret=other)
    assert refused(response) == [("/repository", "wrong_claim"), ("/event_name", "strangers_event")]
    event = AuditEvent.objects.get()
    assert event.action == "release:refused"
    assert event.actor == "release pipeline of evil/fork, run 17.2 at refs/heads/main"
    assert event.after == {
        "code": "invalid_access_token",
        "errors": ["/repository wrong_claim", "/event_name strangers_event"],
    }
    assert event.address
    assert pipeline.nothing_stored()
    assert cdn.asked == []


def test_a_refused_credential_is_audited_once_an_hour(pipeline: Pipeline, issuer: Issuer) -> None:
    now = datetime.now(UTC)
    forged = issuer.signed(issuer.claims(now), kid="unknown")
    expired = issuer.token(now - timedelta(hours=1))
    release = pipeline.release("1.0.0")
    assert refused(pipeline.post(release, secret=forged)) == []
    assert refused(pipeline.post(release, secret=expired)) == [("/exp", "expired")]
    event = AuditEvent.objects.get()
    assert (event.action, event.actor) == ("release:credential_refused", "")
    assert event.after == {"code": "invalid_access_token", "errors": []}
    assert not ServedToken.objects.exists()


def test_an_issuer_that_is_away_has_the_pipeline_come_again(
    pipeline: Pipeline, issuer: Issuer
) -> None:
    issuer.host.files.clear()
    response = pipeline.post(pipeline.release(), secret=issuer.token(datetime.now(UTC)))
    assert (response.status_code, response["Retry-After"]) == (503, "60")
