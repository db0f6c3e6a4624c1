"""The tests of a kind: none is left out by a wrong word or by a marker that its file does not name."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.checks.__main__ import main
from tests.checks.naming import pytest_collection_modifyitems, pytest_ignore_collect


def test_an_unknown_kind_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["full", "wires"]) == 2
    assert capsys.readouterr().err == "There is no kind wires.\n"


@pytest.mark.parametrize(
    ("name", "text", "left_out"),
    [
        ("test_a.py", "@pytest.mark.wire\ndef test_a(): ...", None),
        ("test_a.py", "@pytest.mark.full\ndef test_a(): ...", True),
        ("folder", "", None),
    ],
)
def test_a_file_without_the_marker_is_left_out(
    tmp_path: Path, name: str, text: str, *, left_out: bool | None
) -> None:
    (path := tmp_path / name).write_text(text)
    config: Any = SimpleNamespace(getoption={"naming": "wire"}.get)
    assert pytest_ignore_collect(path, config) is left_out
    config = SimpleNamespace(getoption={"naming": None}.get)
    assert pytest_ignore_collect(path, config) is None


@pytest.mark.parametrize("marker", ["wire", "full", "wall_time"])
def test_a_marker_that_its_file_does_not_name_is_refused(tmp_path: Path, marker: str) -> None:
    (path := tmp_path / "test_a.py").write_text("from elsewhere import test_a")
    item: Any = SimpleNamespace(
        nodeid="test_a.py::test_a", path=path, get_closest_marker={marker: True}.get
    )
    with pytest.raises(pytest.UsageError, match=f"name pytest.mark.{marker} in the file"):
        pytest_collection_modifyitems([item])
    path.write_text(f"pytestmark = pytest.mark.{marker}")
    pytest_collection_modifyitems([item])
