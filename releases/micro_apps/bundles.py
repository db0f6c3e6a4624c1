"""Checks of bundles without unpacking them: plain files and folders inside one folder.

Shells also run on systems that ignore case in file names and reserve names, so names that collide there are refused.
"""

import gzip
import io
import os
import re
import tarfile
import zlib
from pathlib import Path
from unicodedata import category, normalize

from config.platform.problems.problem import Fault, Problem

LIMIT_BYTES = 256 * 2**20
LIMIT_UNPACKED_BYTES = 1024 * 2**20
LIMIT_MEMBERS = 20_000
LIMIT_NAME, LIMIT_PART = 1_000, 255
READ_BYTES = 2**20
# Names of devices on Windows, with any ending. It reads superscript digits as digits.
DEVICES = re.compile(r"(con(in\$|out\$)?|prn|aux|nul|(com|lpt)[0-9¹²³]) *(\..*)?", re.IGNORECASE)
# Windows also finds a file with a long name by such a short one.
SHORT_NAME = re.compile(r"~[0-9]+(\.[^.]*)?$")
NOT_IN_NAMES = re.compile(r'[\x00-\x1f\x7f\\/:*?"<>|]')
# Controls, characters such as those that turn the direction of text, and ends of lines.
INVISIBLE = frozenset({"Cc", "Cf", "Zl", "Zp"})
# Letters, marks, signs and spaces that show nothing: ignorable ones, the empty braille cell, spaces but the plain one.
BLANK = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2065\u2800\u3164\ufe00-\ufe0f\uffa0\ufff0-\ufffc"
    "\U00016fe4\U0001d159\U000e0000-\U000e0fff]|[^\\S ]"
)
# Folders whose programs run what stands in their settings.
VERSION_CONTROL = frozenset({".bzr", ".git", ".hg", ".jj", ".svn", "_darcs", "cvs"})


class BundleRejected(Problem):
    code = "artifact_rejected"
    status = 422
    title = "Bundle rejected"
    default_detail = "This bundle cannot be published; nothing was changed."

    def __init__(self, code: str, detail: str, name: str | None = None) -> None:
        """``name``: that of a member, which the sentence ends in, escaped and cut."""
        told = detail if name is None else f"{detail}: {ascii(name)[1:-1][:120]}."
        super().__init__(errors=[Fault("/bundle", code, told)])


def read(path: Path) -> bytes:
    """Reads a bundle once, so that the checked bytes are the published ones; raises ``BundleRejected``."""
    with path.open("rb") as file:
        # The file may grow during the read, so its size alone proves nothing.
        too_large = os.fstat(file.fileno()).st_size > LIMIT_BYTES
        content = b"" if too_large else file.read(LIMIT_BYTES + 1)
    if too_large or len(content) > LIMIT_BYTES:
        raise BundleRejected("too_large", f"A bundle can be at most {LIMIT_BYTES} bytes.")
    check(content)
    return content


def check(content: bytes) -> None:
    """Raises ``BundleRejected`` unless this is a gzipped tar archive of plain files that stay inside it."""
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as unpacked:
            stream = _Counted(unpacked)
            with tarfile.open(fileobj=stream, mode="r|", errorlevel=2) as archive:  # type: ignore[call-overload]
                _check_members(archive)
                _check_end(archive, stream)
            _check_rest(stream)
    except (tarfile.TarError, gzip.BadGzipFile, EOFError, zlib.error, UnicodeError) as error:
        raise BundleRejected(
            "not_an_archive", "This is not a complete tar archive in gzip form."
        ) from error


class _Counted:
    """Counts the unpacked bytes and refuses too many of them."""

    def __init__(self, stream: gzip.GzipFile) -> None:
        self._stream = stream
        self.taken = 0

    def read(self, size: int = -1) -> bytes:
        content = self._stream.read(min(size, READ_BYTES) if size >= 0 else READ_BYTES)
        self.taken += len(content)
        _check_size(self.taken)
        return content


def _check_size(size: int) -> None:
    if size > LIMIT_UNPACKED_BYTES:
        raise BundleRejected(
            "too_large_unpacked", f"A bundle unpacks to at most {LIMIT_UNPACKED_BYTES} bytes."
        )


def _check_members(archive: tarfile.TarFile) -> None:
    files: dict[str, str] = {}
    folders: dict[str, str] = {}
    number = 0
    for number, member in enumerate(archive, start=1):
        if number > LIMIT_MEMBERS:
            raise BundleRejected(
                "too_many_files", f"A bundle can have at most {LIMIT_MEMBERS} files."
            )
        # tarfile would skip an absurd size in small steps, for hours.
        _check_size(member.offset_data + member.size)
        _check_kind(member)
        parts = _parts(member)
        same = _same_elsewhere(parts)
        if member.isfile():
            if same in files or same in folders:
                raise BundleRejected(
                    "name_twice", "Two files have equal or similar names", member.name
                )
            files[same] = member.name
        for depth in range(1, len(parts) + (0 if member.isfile() else 1)):
            folder = _same_elsewhere(parts[:depth])
            if folder in files:
                raise BundleRejected(
                    "name_twice", "A file and a folder have the same name", member.name
                )
            folders[folder] = member.name
    if not files:
        raise BundleRejected("empty", "This bundle has no files.")


def _check_kind(member: tarfile.TarInfo) -> None:
    if member.issym() or member.islnk():
        raise BundleRejected("link", "The member is a link", member.name)
    if member.type not in {tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.DIRTYPE}:
        raise BundleRejected("not_a_file", "The member is neither a file nor a folder", member.name)
    if member.mode & 0o7000:
        raise BundleRejected(
            "special_mode", "The member has a set-uid, set-gid or sticky bit", member.name
        )


def _parts(member: tarfile.TarInfo) -> list[str]:
    """The parts of a valid relative name."""
    name = member.name.removeprefix("./") if member.name != "." else ""
    if name.startswith("/"):
        raise BundleRejected("absolute_path", "The path is absolute", member.name)
    parts = name.split("/") if name else []
    if ".." in parts:
        raise BundleRejected("path_traversal", "The path leads out of the bundle", member.name)
    if len(name) > LIMIT_NAME or any(len(part.encode()) > LIMIT_PART for part in parts):
        raise BundleRejected("name_too_long", "The name is too long", member.name)
    for part in parts:
        _check_part(part, member.name)
    if not parts and member.isfile():
        raise BundleRejected("unusual_name", "A file has no name.")
    return parts


def _check_part(part: str, name: str) -> None:
    # Some systems take compatible characters, as full-width ones, for the plain ones.
    for form in (part, normalize("NFKC", part)):
        if form in {"", "."} or NOT_IN_NAMES.search(form) or form != form.rstrip(". "):
            raise BundleRejected("unusual_name", "Some systems refuse this name", name)
        if DEVICES.fullmatch(form):
            raise BundleRejected("unusual_name", "This is the name of a device on Windows", name)
        if SHORT_NAME.search(form):
            raise BundleRejected("unusual_name", "Windows may open another file by this name", name)
    if _same_elsewhere([part]) in VERSION_CONTROL:
        raise BundleRejected("unusual_name", "This name belongs to version control", name)
    if BLANK.search(part) or not INVISIBLE.isdisjoint(map(category, part)):
        raise BundleRejected("unusual_name", "The name has an invisible character", name)


def _same_elsewhere(parts: list[str]) -> str:
    """A path as systems compare it that ignore case and Unicode normalization, also that of compatible characters."""
    return normalize("NFKC", normalize("NFKC", "/".join(parts)).casefold())


def _check_end(archive: tarfile.TarFile, stream: _Counted) -> None:
    """Raises ``EOFError`` for a truncated last file, which tarfile accepts."""
    if stream.taken < archive.offset:
        raise EOFError


def _check_rest(stream: _Counted) -> None:
    """Refuses data after the end of the archive, which some readers would unpack."""
    while chunk := stream.read(READ_BYTES):
        if chunk.strip(b"\0"):
            raise BundleRejected("trailing_data", "The file has data after the end of the archive.")
