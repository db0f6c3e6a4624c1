"""Checks of the settings of identity tokens. Weaker ones would let other runs than the release pipeline publish."""

from collections.abc import Mapping
from urllib.parse import urlsplit

OWNER_ID = "repository_owner_id"
# Claims that name one project of the issuer, and its branch or environment; a subject names both.
PROJECT = frozenset({"repository", "repository_id", "project_path", "project_id", "sub"})
PLACE = frozenset({"ref", "ref_path", "environment", "sub"})


def faults(*, issuer: str, audience: str, claims: Mapping[str, str]) -> dict[str, str]:
    """Returns a sentence for each variable that is missing or too weak."""
    if not issuer:
        if audience or claims:
            return {"PUBLISH_OIDC_ISSUER": "PUBLISH_OIDC_AUDIENCE and PUBLISH_OIDC_CLAIMS need it."}
        return {}
    found = {}
    if not audience:
        found["PUBLISH_OIDC_AUDIENCE"] = "PUBLISH_OIDC_ISSUER needs it."
    if sentences := list(_of_claims(claims, github=is_github(issuer))):
        found["PUBLISH_OIDC_CLAIMS"] = " ".join(sentences)
    return found


def _of_claims(claims: Mapping[str, str], *, github: bool) -> list[str]:
    sentences = []
    if PROJECT.isdisjoint(claims):
        sentences.append("Must name the project: repository, or project_id at GitLab.")
    if PLACE.isdisjoint(claims):
        sentences.append("Must name the branch or the environment: ref or environment.")
    if github and not claims.get(OWNER_ID, "").isdecimal():
        sentences.append(
            f"Must have {OWNER_ID}, a number: another user could take the name of an owner later."
        )
    return sentences


def is_github(issuer: str) -> bool:
    """Returns whether this is an issuer of GitHub, also of an enterprise or an own server."""
    parts = urlsplit(issuer)
    host = parts.hostname or ""
    return host.startswith("token.actions.") or parts.path.rstrip("/").endswith("/_services/token")
