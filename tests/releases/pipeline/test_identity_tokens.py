"""Identity tokens: the run that settings mean publishes, and whatever else a token may be is refused by name."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from pytest_django.fixtures import Settings

from releases.pipeline.identity_tokens import (
    AnotherPipeline,
    Identity,
    IdentityTokenRefused,
    identify,
    looks_like_one,
)
from releases.pipeline.issuer_keys import IssuerUnavailable, keys_of
from tests.forgeries import forgeries
from tests.releases.issuer import AUDIENCE, MINUTE, REQUIRED, Issuer, new_ec, new_rsa
from tests.standins.cdn import Cdn

GITHUB = "https://token.actions.githubusercontent.com"
DAY = 24 * 60 * MINUTE


@pytest.fixture
def issuer(cdn: Cdn, settings: Settings) -> Issuer:
    issuer = Issuer(cdn)
    settings.PUBLISH_OIDC_ISSUER = issuer.url
    settings.PUBLISH_OIDC_AUDIENCE = AUDIENCE
    settings.PUBLISH_OIDC_CLAIMS = dict(REQUIRED)
    keys_of.cache_clear()
    return issuer


def who(token: str, now: datetime) -> Identity:
    assert looks_like_one(token.encode())
    return identify(token.encode(), now=now)


def faults(token: str, now: datetime) -> list[tuple[str, str]]:
    with pytest.raises(IdentityTokenRefused) as refusal:
        who(token, now)
    assert (refusal.value.status, refusal.value.code) == (401, "invalid_access_token")
    return [(fault.pointer, fault.code) for fault in refusal.value.errors]


def test_the_run_that_settings_mean_is_named_as_its_issuer_names_it(
    issuer: Issuer, now: datetime
) -> None:
    identity = who(issuer.token(now), now)
    assert identity.name == "release pipeline of acme/shell, run 17.2 at refs/heads/main"
    assert identity.token.ends == now.replace(microsecond=0) + timedelta(minutes=5, seconds=30)


def test_a_pipeline_elsewhere_is_named_too_and_nothing_in_a_name_breaks_a_line(
    issuer: Issuer, now: datetime, settings: Settings
) -> None:
    settings.PUBLISH_OIDC_CLAIMS = {"project_id": "7", "ref_protected": "true"}
    given = {
        "repository": None,
        "run_id": None,
        "project_path": "acme/shell\n\x00" + "x" * 200,
        "pipeline_id": 99,
        "project_id": 7,
        "ref_protected": True,
    }
    name = who(issuer.token(now, **given), now).name
    assert name.startswith("release pipeline of acme/shellxxx")
    assert len(name) == 120


@pytest.mark.parametrize(
    "claims",
    [
        {"aud": [AUDIENCE]},
        {"nbf": None},
        {"event_name": "release"},
        {"event_name": "schedule"},
        {"event_name": "workflow_dispatch"},
        {"pipeline_source": "web"},
        {"repository_owner_id": 1234},
        {"later": {"claims": ["are", "no", "fault"]}},
    ],
)
def test_equivalent_notations_are_accepted(
    issuer: Issuer, now: datetime, claims: dict[str, Any]
) -> None:
    assert who(issuer.token(now, **claims), now).name


ENVELOPE: list[tuple[dict[str, Any], str, str]] = [
    ({"iss": None}, "/iss", "wrong_issuer"),
    ({"iss": "https://another.test"}, "/iss", "wrong_issuer"),
    ({"iss": f"{GITHUB}/"}, "/iss", "wrong_issuer"),
    ({"aud": None}, "/aud", "wrong_audience"),
    ({"aud": f"{AUDIENCE}/"}, "/aud", "wrong_audience"),
    ({"aud": []}, "/aud", "wrong_audience"),
    ({"aud": [AUDIENCE, "another"]}, "/aud", "wrong_audience"),
    ({"aud": [AUDIENCE, AUDIENCE]}, "/aud", "wrong_audience"),
    ({"aud": {AUDIENCE: 1}}, "/aud", "wrong_audience"),
    ({"jti": None}, "/jti", "required"),
    ({"jti": ""}, "/jti", "required"),
    ({"jti": 7}, "/jti", "required"),
    ({"exp": None}, "/exp", "invalid_type"),
    ({"exp": "never"}, "/exp", "invalid_type"),
    ({"exp": True}, "/exp", "invalid_type"),
    ({"exp": 10**400}, "/exp", "too_long"),
    ({"iat": None}, "/exp", "invalid_type"),
    ({"nbf": "now"}, "/exp", "invalid_type"),
]


@pytest.mark.parametrize(("claims", "pointer", "code"), ENVELOPE)
def test_a_token_of_no_use_here_is_refused_before_the_issuer_is_asked(
    issuer: Issuer, now: datetime, claims: dict[str, Any], pointer: str, code: str
) -> None:
    assert faults(issuer.token(now, **claims), now) == [(pointer, code)]
    assert issuer.host.asked == []


@pytest.mark.parametrize(
    ("seconds", "code"),
    [
        (-31, "/iat not_yet"),
        (-29, None),
        (5 * MINUTE + 29, None),
        (5 * MINUTE + 31, "/exp expired"),
    ],
)
def test_clocks_may_differ_by_half_a_minute(
    issuer: Issuer, now: datetime, seconds: int, code: str | None
) -> None:
    token, later = issuer.token(now), now.replace(microsecond=0) + timedelta(seconds=seconds)
    if code is None:
        assert who(token, later)
    else:
        assert faults(token, later) == [tuple(code.split())]


def test_a_token_is_not_taken_before_its_time_nor_for_longer_than_a_run(
    issuer: Issuer, now: datetime
) -> None:
    at = int(now.timestamp())
    assert faults(issuer.token(now, nbf=at + MINUTE), now) == [("/nbf", "not_yet")]
    assert who(issuer.token(now, exp=at + DAY), now)
    assert faults(issuer.token(now, exp=at + DAY + 1), now) == [("/exp", "too_long")]


@pytest.mark.parametrize("name", REQUIRED)
@pytest.mark.parametrize("value", [None, "", "another", ["acme/shell"], {}, 0, False, "ACME/SHELL"])
def test_every_claim_that_settings_demand_has_to_be_exactly_so(
    issuer: Issuer, now: datetime, name: str, value: Any
) -> None:
    token = issuer.token(now, **{name: value})
    assert faults(token, now) == [(f"/{name}", "wrong_claim")]


def test_a_refused_pipeline_with_a_valid_token_is_audited_by_name(
    issuer: Issuer, now: datetime
) -> None:
    with pytest.raises(AnotherPipeline) as refusal:
        who(issuer.token(now, repository="evil/fork"), now)
    assert refusal.value.name == "release pipeline of evil/fork, run 17.2 at refs/heads/main"
    shown = [refusal.value.detail, *(fault.detail for fault in refusal.value.errors)]
    assert not any("acme" in each for each in shown)


@pytest.mark.parametrize(
    ("claim", "event"),
    [
        ("event_name", "pull_request"),
        ("event_name", "pull_request_target"),
        ("event_name", "issue_comment"),
        ("event_name", "workflow_run"),
        ("event_name", "label"),
        ("event_name", "check_run"),
        ("event_name", "merge_group"),
        ("event_name", "repository_dispatch"),
        ("event_name", "an event of next year"),
        ("event_name", "PUSH"),
        ("event_name", " push"),
        ("event_name", ["push"]),
        ("event_name", {"push": 1}),
        ("event_name", ""),
        ("event_name", True),
        ("event_name", None),
        ("pipeline_source", "merge_request_event"),
        ("pipeline_source", "external_pull_request_event"),
        ("pipeline_source", "parent_pipeline"),
    ],
)
def test_only_a_few_events_publish(issuer: Issuer, now: datetime, claim: str, event: Any) -> None:
    assert faults(issuer.token(now, **{claim: event}), now) == [(f"/{claim}", "strangers_event")]


def test_an_issuer_whose_tokens_name_no_event_is_taken_without(
    issuer: Issuer, now: datetime, settings: Settings
) -> None:
    settings.PUBLISH_OIDC_CLAIMS = {"project_id": "7", "ref": "main"}
    given = {"project_id": 7, "ref": "main", "event_name": None, "repository": None}
    assert who(issuer.token(now, **given), now)
    given["pipeline_source"] = "parent_pipeline"
    assert faults(issuer.token(now, **given), now) == [("/pipeline_source", "strangers_event")]


def test_every_known_way_to_forge_a_token_fails(
    issuer: Issuer, now: datetime, settings: Settings
) -> None:
    settings.PUBLISH_OIDC_CLAIMS = {"sub": "repo:acme/shell", "sid": "7", "ver": "9"}
    good = issuer.token(now, sub="repo:acme/shell", sid=7, ver=9)
    assert who(good, now)
    tried = forgeries(good, kid="first", key=issuer.keys["first"])
    # Tokens of other issuers have other types, or none.
    taken = {"typ JWT", "no typ"}
    for name, forged in tried.items():
        presented = forged.encode("utf-8", "replace")
        if name not in taken and looks_like_one(presented):
            with pytest.raises(IdentityTokenRefused):
                pytest.fail(f"{name} was taken as {identify(presented, now=now)}")
    assert len(tried) > 40


@pytest.mark.parametrize(
    "forge",
    [
        lambda issuer, now: issuer.signed(issuer.claims(now), kid="unknown"),
        lambda issuer, now: issuer.signed(issuer.claims(now), crit=["exp"]),
        lambda issuer, now: issuer.token(now)[:-4],
        lambda issuer, now: "a.b.c",
        lambda issuer, now: "..",
        lambda issuer, now: "eyJhbGciOiJub25lIn0.e30.",
    ],
)
def test_a_token_without_a_signature_of_the_issuer_is_refused_without_details(
    issuer: Issuer, now: datetime, forge: Callable[[Issuer, datetime], str]
) -> None:
    assert faults(forge(issuer, now), now) == []


def test_a_key_of_somebody_else_under_a_known_id_is_refused(issuer: Issuer, now: datetime) -> None:
    assert who(issuer.token(now), now)
    issuer.keys["first"] = new_rsa()
    assert faults(issuer.token(now), now) == []
    assert issuer.times_asked == 1


def test_es256_is_for_issuers_that_announce_it(issuer: Issuer, now: datetime) -> None:
    issuer.keys = {"curved": new_ec(), "first": new_rsa()}
    issuer.publish()
    assert faults(issuer.token(now), now) == []
    issuer.publish(id_token_signing_alg_values_supported=["RS256", "ES256"])
    later = now + timedelta(minutes=1)
    assert who(issuer.token(later), later)


def test_a_thousand_bad_tokens_ask_the_issuer_once(issuer: Issuer, now: datetime) -> None:
    claims = issuer.claims(now)
    token = issuer.signed(claims)
    head, payload, signature = token.split(".")
    for number in range(1000):
        with pytest.raises(IdentityTokenRefused):
            identify(f"{head}.{payload}.{number:04}{signature[4:]}".encode(), now=now)
    for number in range(20):
        assert faults(issuer.signed(claims, kid=f"unknown {number}"), now) == []
    assert issuer.times_asked == 1


def test_an_issuer_that_is_away_is_not_the_pipelines_fault(issuer: Issuer, now: datetime) -> None:
    issuer.host.files.clear()
    with pytest.raises(IssuerUnavailable):
        who(issuer.token(now), now)
