"""The environment file: who may read it, what it holds, and what goes before it."""

import os
import stat
from pathlib import Path

import pytest

from tests.tools import environment

AWKWARD = {"PLAIN": "x", "EQUALS": "a=b==", "MARKS": "#\"'$ \\ ü", "EMPTY": "", "SPACES": " a  b "}


def test_every_value_comes_back_as_it_was(tmp_path: Path) -> None:
    environment.write(tmp_path / "env", AWKWARD)
    assert environment.read(tmp_path / "env") == AWKWARD


def test_only_its_owner_may_read_it_whatever_was_there_before(tmp_path: Path) -> None:
    path = tmp_path / "env"
    path.write_text("OLD=1\n")
    path.chmod(0o666)
    before = os.umask(0)
    try:
        environment.write(path, {"NEW": "1"})
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert environment.read(path) == {"NEW": "1"}


def test_a_value_with_a_newline_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    environment.write(tmp_path / "env", {"A": "1"})
    with pytest.raises(ValueError, match="B has a newline"):
        environment.write(tmp_path / "env", {"A": "2", "B": "x\ny"})
    assert environment.read(tmp_path / "env") == {"A": "1"}


def test_loading_sets_what_is_missing_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        os, "environ", {"SET": "by hand", "BY_FILE_FILE": "/somewhere", "BLANK": ""}
    )
    environment.write(tmp_path / "env", {"SET": "1", "BY_FILE": "2", "BLANK": "3", "MISSING": "4"})
    environment.load(tmp_path / "env")
    assert os.environ == {
        "SET": "by hand",
        "BY_FILE_FILE": "/somewhere",
        "BLANK": "",
        "MISSING": "4",
    }


def test_loading_without_a_file_is_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", {"A": "1"})
    environment.load(tmp_path / "env")
    assert os.environ == {"A": "1"}


def test_what_a_run_needs_itself_is_read_from_files(tmp_path: Path) -> None:
    (tmp_path / "port").write_text("8974\n")
    given = {"PORT_FILE": str(tmp_path / "port"), "HOST": "::1", "CDN_URL_FILE": "/nowhere"}
    environment.read_files(given, "HOST", "PORT", "CDN_URL")
    assert given == {"PORT": "8974", "HOST": "::1", "CDN_URL_FILE": "/nowhere"}
