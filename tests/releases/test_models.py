"""Constraints of the database on releases, whoever writes them."""

from typing import Any

import pytest
from django.db import IntegrityError, models
from django.db.models import ProtectedError

from releases.models import Publication, ShellArtifact, ShellChannel, ShellRelease
from tests.releases.conftest import NOW

pytestmark = pytest.mark.django_db

SUM = "0" * 64


def release(version: str = "1.0.0", **fields: Any) -> ShellRelease:
    channel, _ = ShellChannel.objects.get_or_create(name="stable")
    given = {
        "manifest": b"{}",
        "manifest_sha256": SUM,
        "platforms": ["darwin-aarch64"],
        "published_at": NOW,
        "published_by": "test",
        **fields,
    }
    return ShellRelease.objects.create(channel=channel, version=version, **given)


def artifact(**fields: Any) -> ShellArtifact:
    given = {"platform": "darwin-aarch64", "url": "u", "sha256": SUM, "size": 1, **fields}
    return ShellArtifact.objects.create(release=release(), **given)


def broken(constraint: str) -> Any:
    return pytest.raises(IntegrityError, match=constraint)


@pytest.mark.parametrize("name", ["", "Stable", "a/b", "-a", "a--b", "a_b", "ä"])
def test_a_channel_has_a_plain_name(name: str) -> None:
    with broken("shell_channel_name_is_a_plain_word"):
        ShellChannel.objects.create(name=name)


def test_a_version_is_one_release_of_its_channel() -> None:
    release("1.0.0")
    release("1.0.1")
    with broken("one_release_per_channel_and_version"):
        release("1.0.0")


def test_sums_are_lower_hex_and_sizes_are_something() -> None:
    with broken("release_sha256_is_lower_hex"):
        release(manifest_sha256="A" * 64)


@pytest.mark.parametrize(
    ("fields", "constraint"),
    [
        ({"sha256": "short"}, "artifact_sha256_is_lower_hex"),
        ({"size": 0}, "artifact_size_is_positive"),
    ],
)
def test_an_artifact_has_a_sum_and_a_size(fields: dict[str, Any], constraint: str) -> None:
    with broken(constraint):
        artifact(**fields)


def test_a_platform_has_one_artifact() -> None:
    first = artifact()
    with broken("one_artifact_per_release_and_platform"):
        ShellArtifact.objects.create(
            release=first.release, platform=first.platform, url="v", sha256=SUM, size=1
        )


def test_a_release_with_publications_cannot_be_deleted() -> None:
    one = release()
    Publication.objects.create(
        release=one, signature=b"s", signed_at=NOW, published_at=NOW, published_by="test"
    )
    rows: list[models.Model] = [one, one.channel]
    for row in rows:
        with pytest.raises(ProtectedError):
            row.delete()


def test_the_history_of_a_channel_is_newest_first_and_knows_what_is_stored() -> None:
    one, two = release("1.0.0"), release("1.1.0")
    fields: dict[str, Any] = {"signature": b"s", "signed_at": NOW, "published_at": NOW}
    old = Publication.objects.create(release=one, stored_at=NOW, **fields)
    new = Publication.objects.create(release=two, **fields)
    assert list(Publication.objects.of("stable")) == [new, old]
    assert list(Publication.objects.of("stable").stored()) == [old]
    assert not Publication.objects.of("beta").exists()
