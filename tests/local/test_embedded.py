"""What a start brings itself, and the environment file that says where it is."""

import stat
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.tools import redis
from tests.tools.embedded import ensure_environment, write_environment
from tests.tools.environment import read
from tests.tools.folders import claim, held


def write(folder: Path, environ: dict[str, str]) -> tuple[set[str], dict[str, str]]:
    """The names of the servers to start, and the file's values."""
    folder = claim(folder)
    sockets = folder / "sockets"
    embedded, values = write_environment(
        folder, host="127.0.0.1", port=8000, sockets=sockets, environ=environ
    )
    brought = {
        "database": embedded.database,
        "cache": embedded.cache,
        "provider": embedded.provider_port,
        "cdn": embedded.cdn_port,
    }
    return {name for name, server in brought.items() if server is not None}, values


def test_without_a_word_everything_is_brought(tmp_path: Path) -> None:
    started, values = write(tmp_path, {})
    assert started == {"database", "provider", "cdn"} | ({"cache"} if redis.available() else set())
    assert values == read(tmp_path / "env")
    assert values.keys() >= {"DATABASE_URL", "CACHE_URL", "LLM_BASE_URL", "CDN_URL", "CDN_PURGE"}


@pytest.mark.parametrize(
    ("name", "server"),
    [
        ("DATABASE_URL", "database"),
        ("CACHE_URL", "cache"),
        ("LLM_BASE_URL", "provider"),
        ("CDN_URL", "cdn"),
    ],
)
@pytest.mark.parametrize("suffix", ["", "_FILE"])
def test_what_is_given_is_neither_brought_nor_written(
    tmp_path: Path, name: str, server: str, suffix: str
) -> None:
    started, values = write(tmp_path, {f"{name}{suffix}": "s3cret"})
    assert server not in started
    assert name not in values
    assert "s3cret" not in (tmp_path / "env").read_text()


def test_the_provider_keeps_its_port(tmp_path: Path) -> None:
    first = write(tmp_path, {})[1]["LLM_BASE_URL"]
    assert urlsplit(first).hostname == "127.0.0.1"
    assert write(tmp_path, {})[1]["LLM_BASE_URL"] == first


def test_the_cdn_keeps_its_port_because_published_manifests_name_it(tmp_path: Path) -> None:
    first = write(tmp_path, {})[1]["CDN_URL"]
    assert urlsplit(first).hostname == "127.0.0.1"
    assert write(tmp_path, {})[1]["CDN_URL"] == first
    assert "CDN_PURGE" not in write(tmp_path, {"CDN_URL": "https://cdn.test"})[1]


def test_the_file_is_made_once_without_a_start(tmp_path: Path) -> None:
    folder = tmp_path / "local"
    ensure_environment(folder, {})
    made = (folder / "env").read_bytes()
    assert stat.S_IMODE((folder / "env").stat().st_mode) == 0o600
    ensure_environment(folder, {"PORT": "9000"})
    assert (folder / "env").read_bytes() == made


def test_whoever_holds_the_folder_writes_its_file(tmp_path: Path) -> None:
    with held(tmp_path):
        ensure_environment(tmp_path, {})
        assert not (tmp_path / "env").exists()
