"""Settings of identity tokens: whatever lets other runs than the release pipeline publish stops the start."""

from typing import Any

import pytest

from releases.pipeline.issuer_settings import faults
from tests.releases.issuer import AUDIENCE, REQUIRED

GITHUB = "https://token.actions.githubusercontent.com"
OWNER = {"repository_owner_id": "1234"}


@pytest.mark.parametrize(
    ("given", "needs"),
    [
        ({"audience": "", "claims": {}}, {"PUBLISH_OIDC_AUDIENCE", "PUBLISH_OIDC_CLAIMS"}),
        ({"claims": {}}, {"PUBLISH_OIDC_CLAIMS"}),
        ({"audience": ""}, {"PUBLISH_OIDC_AUDIENCE"}),
        ({"issuer": ""}, {"PUBLISH_OIDC_ISSUER"}),
        ({"issuer": "", "claims": {}}, {"PUBLISH_OIDC_ISSUER"}),
        ({"claims": OWNER}, {"PUBLISH_OIDC_CLAIMS"}),
        ({"claims": {**OWNER, "ref": "refs/heads/main"}}, {"PUBLISH_OIDC_CLAIMS"}),
        ({"claims": {**OWNER, "repository": "acme/shell"}}, {"PUBLISH_OIDC_CLAIMS"}),
        ({"claims": {"repository": "acme/shell", "ref": "main"}}, {"PUBLISH_OIDC_CLAIMS"}),
        ({"claims": {**REQUIRED, "repository_owner_id": "acme"}}, {"PUBLISH_OIDC_CLAIMS"}),
        (
            {
                "issuer": "https://git.acme.test/_services/token",
                "claims": {"repository": "a/b", "ref": "main"},
            },
            {"PUBLISH_OIDC_CLAIMS"},
        ),
        (
            {"issuer": "https://gitlab.test", "claims": {"project_id": "7"}},
            {"PUBLISH_OIDC_CLAIMS"},
        ),
    ],
)
def test_settings_that_let_others_in_are_named(given: dict[str, Any], needs: set[str]) -> None:
    settings = {"issuer": GITHUB, "audience": AUDIENCE, "claims": REQUIRED, **given}
    assert faults(**settings).keys() == needs


@pytest.mark.parametrize(
    ("issuer", "claims"),
    [
        (GITHUB, REQUIRED),
        (GITHUB, {**OWNER, "repository_id": "1", "environment": "release"}),
        (GITHUB, {**OWNER, "sub": "repo:acme/shell:environment:release"}),
        ("https://gitlab.test", {"project_id": "7", "ref": "main", "ref_protected": "true"}),
        ("http://127.0.0.1:9000", {"sub": "x"}),
    ],
)
def test_settings_that_name_the_project_and_its_branch_or_environment_start(
    issuer: str, claims: dict[str, str]
) -> None:
    assert faults(issuer=issuer, audience=AUDIENCE, claims=claims) == {}


def test_nothing_is_asked_for_without_an_issuer() -> None:
    assert faults(issuer="", audience="", claims={}) == {}
