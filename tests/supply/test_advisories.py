"""Locked packages against records in OSV's form."""

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
from packaging.version import Version

from tests.supply import advisories
from tests.supply.advisories import findings, is_affected
from tests.supply.locks import Pin, pins
from tests.tools.folders import ROOT

DJANGO = Pin("django", Version("5.2.19"))
STORAGES = Pin("django-storages", Version("1.14.6"))


def ranges(*events: tuple[str, str], kind: str = "ECOSYSTEM") -> dict[str, Any]:
    return {"ranges": [{"type": kind, "events": [{name: text} for name, text in events]}]}


def record(
    name: str, affected: dict[str, Any], package: str = "Django", **more: Any
) -> dict[str, Any]:
    entry = {"package": {"ecosystem": "PyPI", "name": package}, **affected}
    return {"id": name, "modified": "2026-11-01T00:00:00Z", "affected": [entry], **more}


OPEN = ranges(("introduced", "5.2"))


@pytest.mark.parametrize(
    ("affected", "expected"),
    [
        (ranges(("introduced", "0")), True),
        (ranges(("introduced", "5.2"), ("fixed", "5.2.20")), True),
        (ranges(("introduced", "5.2"), ("fixed", "5.2.19")), False),
        (ranges(("introduced", "5.2.20")), False),
        (ranges(("introduced", "5.0"), ("last_affected", "5.2.19")), True),
        (ranges(("introduced", "5.0"), ("last_affected", "5.2.18")), False),
        # Several stretches, in any order; 5.2.9 is before 5.2.19.
        (ranges(("fixed", "4.2.1"), ("introduced", "5.2.9"), ("introduced", "4.0")), True),
        (ranges(("introduced", "4.0"), ("fixed", "5.2.9"), ("introduced", "6.0")), False),
        # A release candidate comes before its release.
        (ranges(("introduced", "5.2.19rc1"), ("fixed", "5.2.20a1")), True),
        ({"versions": ["5.2.18", "5.2.19"]}, True),
        ({"versions": ["5.2.19.0"]}, True),
        ({"versions": ["5.2.1", "not-a-version"]}, False),
        (ranges(("introduced", "0"), kind="GIT"), False),
        (ranges(("introduced", "0"), ("fixed", "not-a-version")), True),
        ({}, False),
    ],
)
def test_a_version_is_affected(affected: dict[str, Any], expected: bool) -> None:
    assert is_affected(DJANGO.version, affected) is expected


def test_a_record_that_was_withdrawn_counts_for_nothing() -> None:
    withdrawn = record("PYSEC-1", OPEN, withdrawn="2026-01-01T00:00:00Z")
    assert findings([withdrawn], [DJANGO]) == []


def test_names_of_packages_are_compared_as_the_package_index_does() -> None:
    read = [record("PYSEC-1", ranges(("introduced", "0")), package="Django_Storages")]
    assert [each.pin for each in findings(read, [DJANGO, STORAGES])] == [STORAGES]


def test_packages_of_other_languages_are_not_ours() -> None:
    other = record("GHSA-1", OPEN)
    other["affected"][0]["package"]["ecosystem"] = "npm"
    assert findings([other], [DJANGO]) == []


def test_records_that_are_aliases_are_one_finding() -> None:
    read = [
        record("PYSEC-1", ranges(("introduced", "5"), ("fixed", "5.2.20")), aliases=["CVE-1"]),
        record("PYSEC-2", OPEN),
        record("GHSA-1", ranges(("introduced", "5"), ("fixed", "5.3")), aliases=["CVE-1"]),
    ]
    assert [(each.names, each.fixed) for each in findings(read, [DJANGO])] == [
        ({"CVE-1", "GHSA-1", "PYSEC-1"}, ("5.2.20", "5.3")),
        ({"PYSEC-2"}, ()),
    ]


@pytest.fixture(params=["folder", "zip"])
def export(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """An export with one record against a package of the service's own lock, and one about another."""
    (pin, *_) = pins(ROOT / "requirements.lock")
    read = [
        record("PYSEC-1", ranges(("introduced", "0")), package=pin.name.upper(), aliases=["CVE-1"]),
        record("PYSEC-2", ranges(("introduced", "0")), package="no-package-of-ours"),
    ]
    if request.param == "folder":
        (tmp_path / "PyPI").mkdir()
        for each in read:
            (tmp_path / "PyPI" / f"{each['id']}.json").write_text(json.dumps(each))
        return tmp_path
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        for each in read:
            archive.writestr(f"{each['id']}.json", json.dumps(each))
    return tmp_path / "all.zip"


def test_a_known_weakness_fails_the_check_and_names_lock_package_and_record(
    export: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (pin, *_) = pins(ROOT / "requirements.lock")
    assert advisories.main([str(export)]) == 1
    said = capsys.readouterr().out
    assert f"requirements.lock: {pin.name} {pin.version}: CVE-1, PYSEC-1; no fixed version" in said
    assert "no-package-of-ours" not in said
    assert "with 2 records, the newest of 2026-11-01" in said


def test_a_weakness_that_is_accepted_is_said_and_passes(
    export: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(advisories, "_accepted", lambda: {"CVE-1": "that function is not called"})
    monkeypatch.setenv("OSV_EXPORT", str(export))
    assert advisories.main([]) == 0
    assert "accepted: that function is not called" in capsys.readouterr().out


def test_the_check_without_an_export_says_that_nothing_was_checked(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OSV_EXPORT", raising=False)
    assert advisories.main([]) == 0
    assert "NOT CHECKED" in capsys.readouterr().out


def test_an_export_without_records_is_no_check(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert advisories.main([str(tmp_path)]) == 1
    assert "holds no OSV record" in capsys.readouterr().out
