"""The version that a client is pinned to: `GET /v1/updates/manifest?version=`."""

import json
from typing import Any

import pytest

from releases import channel_control
from releases.models import ShellChannel
from releases.update_explanation import explain
from tests.releases.conftest import Pipeline, Release
from tests.releases.test_channel_control import HOW, back_to
from tests.releases.test_views import ask

pytestmark = pytest.mark.django_db

VERSIONS = ("1.2.0", "1.3.0", "1.4.0", "1.5.0-rc.1+linux")


@pytest.fixture
def releases(pipeline: Pipeline) -> dict[str, Release]:
    made = {version: pipeline.release(version) for version in VERSIONS}
    for release in made.values():
        pipeline.publish(release)
    return made


def pinned(version: str, current: str | None = None, **others: str) -> Any:
    query = f"ch=stable&os=darwin&version={version.replace('+', '%2B')}"
    query += f"&current_version={current}" if current else ""
    return ask(query + "".join(f"&{name}={value}" for name, value in others.items()))


@pytest.mark.parametrize("version", VERSIONS)
def test_a_pinned_shell_gets_that_release_byte_for_byte(
    releases: dict[str, Release], version: str
) -> None:
    response = pinned(version, "1.0.0")
    assert (response.status_code, response.content) == (200, releases[version].body)
    assert response["X-Manifest-Signature"] == releases[version].signature
    assert pinned(version).content == releases[version].body


@pytest.mark.parametrize("current", ["1.3.0", "1.3.1-rc.1", "1.4.0", "2.0.0"])
def test_a_pinned_shell_is_never_offered_an_older_version(
    releases: dict[str, Release], current: str
) -> None:
    response = pinned("1.3.0", current)
    assert (response.status_code, response.content) == (204, b"")


@pytest.mark.parametrize("version", ["1.9.9", "1.5.0-rc.1", "1.2", "v1.2.0"])
def test_a_version_that_was_never_published_is_refused(
    releases: dict[str, Release], version: str
) -> None:
    response = pinned(version, "1.0.0")
    is_one = version in {"1.9.9", "1.5.0-rc.1"}
    assert response.status_code == (404 if is_one else 400)
    if is_one:
        assert response["Cache-Control"].startswith("public")
        assert "version of the channel" in json.loads(response.content)["detail"]
    else:
        assert [each["pointer"] for each in json.loads(response.content)["errors"]] == ["/version"]


def test_a_channel_cannot_be_pinned_to_another_channels_release(
    releases: dict[str, Release], pipeline: Pipeline
) -> None:
    pipeline.publish(pipeline.release("2.0.0", "beta"), channel="beta")
    assert pinned("2.0.0").status_code == 404


def test_a_roll_back_withdraws_what_is_newer_and_nothing_else(
    releases: dict[str, Release], pipeline: Pipeline
) -> None:
    assert back_to("1.3.0")
    statuses = {version: pinned(version).status_code for version in VERSIONS}
    assert statuses == {"1.2.0": 200, "1.3.0": 200, "1.4.0": 404, VERSIONS[-1]: 404}
    # A fix that follows brings nothing back; the same version offered again does.
    pipeline.publish(pipeline.release("1.6.0"))
    assert pinned("1.4.0").status_code == 404
    assert back_to("1.4.0")
    statuses = {version: pinned(version).status_code for version in (*VERSIONS[:3], "1.6.0")}
    assert statuses == {"1.2.0": 200, "1.3.0": 200, "1.4.0": 200, "1.6.0": 404}


def test_a_release_in_its_rollout_may_be_pinned_until_that_is_ended(
    releases: dict[str, Release], pipeline: Pipeline
) -> None:
    begun = pipeline.release("1.6.0")
    pipeline.publish(begun, share=5)
    assert pinned("1.6.0").content == begun.body
    # Of no shell in particular, so caches may keep it.
    assert pinned("1.6.0", install_id="a")["Cache-Control"].startswith("public")
    channel_control.end_share(**HOW)
    assert pinned("1.6.0").status_code == 404


def test_a_halted_channel_offers_nothing_to_pinned_shells_either(
    releases: dict[str, Release],
) -> None:
    ShellChannel.objects.update(halted_at=HOW["now"])
    assert pinned("1.3.0", "1.0.0").status_code == 204


def test_a_check_of_a_pinned_shell_is_one_query(
    releases: dict[str, Release], django_assert_num_queries: Any
) -> None:
    pinned("1.3.0")
    with django_assert_num_queries(1):
        assert pinned("1.3.0").status_code == 200


@pytest.mark.parametrize("system", ["darwin", "linux"])
@pytest.mark.parametrize("current", [None, "1.0.0", "1.3.0"])
@pytest.mark.parametrize("version", ["1.3.0", "1.4.0", "9.9.9", "1.2"])
def test_the_explanation_is_what_a_pinned_shell_gets(
    releases: dict[str, Release], version: str, current: str | None, system: str
) -> None:
    assert back_to("1.3.0")
    explained = explain(
        channel="stable", system=system, arch=None, current_version=current, version=version
    )
    query = f"ch=stable&os={system}&version={version}"
    answer = ask(query + (f"&current_version={current}" if current else ""))
    assert explained.status == answer.status_code
    assert explained.status == 400 or "pinned" in explained.steps[0]
