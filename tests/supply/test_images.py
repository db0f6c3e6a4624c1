"""The images of a deployment are named by digest."""

from pathlib import Path

import pytest

from tests.supply import images

PINNED = "sha256:" + "0a" * 32
NAMES = ("PYTHON_IMAGE", "POSTGRES_IMAGE", "REDIS_IMAGE", "NGINX_IMAGE", "STORAGE_IMAGE")


@pytest.fixture(autouse=True)
def _none_given(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)


def test_a_deployment_that_names_none_is_told_of_each(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert images.main([str(tmp_path / "none")]) == 1
    said = capsys.readouterr().out
    assert [name for name in NAMES if name not in said] == []


def test_one_tag_among_digests_fails_wherever_it_is_given(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / ".env"
    file.write_text("".join(f"{name}=image:1@{PINNED}\n" for name in NAMES))
    assert images.main([str(file)]) == 0
    for tag in ("redis:7.4", "redis@sha256:abc", f"redis@{PINNED} "):
        monkeypatch.setenv("REDIS_IMAGE", tag)
        assert images.main([str(file)]) == 1
    said = capsys.readouterr().out
    assert "REDIS_IMAGE=redis:7.4 is a tag" in said
    assert "PYTHON_IMAGE" not in said
