"""Bundles that must not be unpacked on anybody's desk."""

import gzip
import tarfile
from pathlib import Path

import pytest

from releases.micro_apps import bundles
from releases.micro_apps.bundles import BundleRejected, read
from tests.releases.micro_apps.conftest import archive, file

FOLDER = {"type": tarfile.DIRTYPE, "mode": 0o755}
SECOND = archive(file("hidden.html"))

WRONG = [
    ("absolute_path", archive(file("/etc/passwd"))),
    ("path_traversal", archive(file("../outside"))),
    ("path_traversal", archive(file("a/../../outside"))),
    ("path_traversal", archive(file("ok"), file("..", **FOLDER))),
    ("link", archive(file("link", type=tarfile.SYMTYPE, linkname="/etc/passwd"))),
    ("link", archive(file("a"), file("link", type=tarfile.LNKTYPE, linkname="a"))),
    ("not_a_file", archive(file("disk", type=tarfile.BLKTYPE))),
    ("not_a_file", archive(file("tty", type=tarfile.CHRTYPE))),
    ("not_a_file", archive(file("pipe", type=tarfile.FIFOTYPE))),
    ("special_mode", archive(file("tool", mode=0o4755))),
    ("special_mode", archive(file("tool", mode=0o2755))),
    ("unusual_name", archive(file("..\\outside"))),
    ("unusual_name", archive(file("C:/windows/system.ini"))),
    ("unusual_name", archive(file("a/CON"))),
    ("unusual_name", archive(file("nul.txt"))),
    ("unusual_name", archive(file("page.html."))),
    ("unusual_name", archive(file("a//b"))),
    ("unusual_name", archive(file("line\nbreak"))),
    ("unusual_name", archive(file("CONIN$"))),
    ("unusual_name", archive(file("a/conout$.txt"))),
    ("unusual_name", archive(file("nul .txt"))),
    ("unusual_name", archive(file("COM\u00b9"))),
    ("unusual_name", archive(file("com\u00b2.js"))),
    ("unusual_name", archive(file("lpt\u00b3/a"))),
    ("unusual_name", archive(file("\uff23\uff2f\uff2e"))),
    ("unusual_name", archive(file("\uff0e\uff0e/outside"))),
    ("unusual_name", archive(file("a\uff0fb"))),
    ("unusual_name", archive(file("\u202egpj.exe"))),
    ("unusual_name", archive(file("in\u200bdex.html"))),
    ("unusual_name", archive(file("a\u2028b"))),
    ("unusual_name", archive(file("a\u3164.html"))),
    ("unusual_name", archive(file("\u3164"))),
    ("unusual_name", archive(file("index\ufe0f.html"))),
    ("unusual_name", archive(file("a\uffa0b"))),
    ("unusual_name", archive(file("a\u034fb"))),
    ("unusual_name", archive(file("a\u2800b"))),
    ("unusual_name", archive(file("a\u00a0b"))),
    ("unusual_name", archive(file("a\u3000b"))),
    ("unusual_name", archive(file("a\U000e0041b"))),
    ("unusual_name", archive(file("a\u2066b"))),
    ("unusual_name", archive(file("a\u2065b"))),
    ("unusual_name", archive(file("a\U0001d159b"))),
    ("unusual_name", archive(file("a\U00016fe4b"))),
    ("unusual_name", archive(file("a\ufffcb"))),
    ("unusual_name", archive(file(".git/config"))),
    ("unusual_name", archive(file("a/.GIT/hooks/post-checkout"))),
    ("unusual_name", archive(file("\uff0egit/config"))),
    ("unusual_name", archive(file(".git"))),
    ("unusual_name", archive(file(".hg/hgrc"))),
    ("unusual_name", archive(file(".jj/repo/config.toml"))),
    ("unusual_name", archive(file("a/.bzr/branch"))),
    ("unusual_name", archive(file("a/CVS/Root"))),
    ("unusual_name", archive(file("_darcs/prefs"))),
    ("unusual_name", archive(file("PROGRA~1"))),
    ("unusual_name", archive(file("a/INDEX~12.HTM"))),
    ("name_too_long", archive(file("x" * 256))),
    ("name_twice", archive(file("a"), file("a"))),
    ("name_twice", archive(file("index.html"), file("INDEX.html"))),
    ("name_twice", archive(file("caf\u00e9"), file("cafe\u0301"))),
    ("name_twice", archive(file("file1"), file("\uff46ile1"))),
    ("name_twice", archive(file("\ufb01le"), file("FILE"))),
    ("name_twice", archive(file("a"), file("a/b"))),
    ("name_twice", archive(file("a/b"), file("a"))),
    ("empty", archive()),
    ("empty", archive(file("only", **FOLDER))),
    ("trailing_data", archive(file("a")) + gzip.compress(b"more")),
    ("not_an_archive", b""),
    ("not_an_archive", b"PK\x03\x04 a zip file"),
    ("not_an_archive", archive(file("a", b"x" * 100_000))[:-20]),
    ("not_an_archive", gzip.compress(b"not a tar archive" * 100)),
    ("not_an_archive", archive(file("a"))[:-8] + b"\0" * 8),
]


def refusal(path: Path, content: bytes) -> str:
    bundle = path / "bundle.tar.gz"
    bundle.write_bytes(content)
    with pytest.raises(BundleRejected) as refused:
        read(bundle)
    (fault,) = refused.value.errors
    assert fault.pointer == "/bundle"
    return fault.code


@pytest.mark.parametrize(("code", "content"), WRONG)
def test_a_faulty_bundle_is_refused_with_its_cause(
    tmp_path: Path, code: str, content: bytes
) -> None:
    assert refusal(tmp_path, content) == code


def test_plain_files_and_folders_are_fine(tmp_path: Path) -> None:
    bundle = tmp_path / "bundle.tar.gz"
    bundle.write_bytes(
        archive(
            file(".", **FOLDER),
            file("./index.html", b"<html>"),
            file("assets", **FOLDER),
            file("assets", **FOLDER),
            file("assets/größe.js", b"1" * 50_000),
            file("assets/vendors~main.1.js"),
            file("assets/コンソール-😀.svg"),
            file("assets/console$.js"),
            file("~1abc"),
            file("a file of .git.html"),
            file(".gitignore"),
            file("नमस्ते-ไทย-é.js"),
            file("a/b/c", b""),
            file("b/" + "n" * 200 + "/" + "m" * 200, b"long"),
        )
    )
    assert read(bundle) == bundle.read_bytes()


def test_a_bomb_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundles, "LIMIT_UNPACKED_BYTES", 10_000_000)
    assert refusal(tmp_path, archive(file("zeros", bytes(20_000_000)))) == "too_large_unpacked"


@pytest.mark.parametrize(
    ("claimed", "code"), [(2**40, "too_large_unpacked"), (100_000, "not_an_archive")]
)
def test_a_header_that_claims_more_than_there_is_deceives_nobody(
    tmp_path: Path, claimed: int, code: str
) -> None:
    info = tarfile.TarInfo("big")
    info.size = claimed
    assert refusal(tmp_path, gzip.compress(info.tobuf(tarfile.GNU_FORMAT))) == code


def test_more_files_than_anybody_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundles, "LIMIT_MEMBERS", 3)
    assert refusal(tmp_path, archive(*(file(str(n)) for n in range(4)))) == "too_many_files"


def test_a_bundle_that_is_too_large_is_not_even_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundles, "LIMIT_BYTES", 10)
    assert refusal(tmp_path, archive(file("a"))) == "too_large"


def test_the_checked_bytes_are_returned_if_the_file_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = tmp_path / "bundle.tar.gz"
    bundle.write_bytes(good := archive(file("a")))
    original = bundles.check

    def swapped(content: bytes) -> None:
        bundle.write_bytes(b"something else")
        original(content)

    monkeypatch.setattr(bundles, "check", swapped)
    assert read(bundle) == good
