"""A bundle, held to what may be unpacked on somebody's desk: plain files and folders inside one folder.

It is only looked at, never unpacked. Shells run on systems whose file names ignore case and that have names of their
own, so what would be two files here and one there is refused.
"""

import gzip
import io
import os
import re
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from unicodedata import normalize

from config.api.problems import Fault, Problem

LIMIT_BYTES = 256 * 2**20
LIMIT_UNPACKED_BYTES = 1024 * 2**20
LIMIT_MEMBERS = 20_000
LIMIT_NAME, LIMIT_PART = 1_000, 255
READ_BYTES = 2**20
# What Windows takes for devices, whatever the ending.
DEVICES = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?", re.IGNORECASE)
NOT_IN_NAMES = re.compile(r'[\x00-\x1f\x7f\\:*?"<>|]')


class BundleRejected(Problem):
    code = "artifact_rejected"
    status = 422
    title = "Bundle rejected"
    default_detail = "This bundle cannot be published; nothing was changed."

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(errors=[Fault("/bundle", code, detail)])


def read(path: Path) -> bytes:
    """The bundle's bytes, read once, so that what is checked is what is published; raises ``BundleRejected``."""
    with path.open("rb") as file:
        # A file may grow while it is read: its size is only a reason not to begin.
        too_large = os.fstat(file.fileno()).st_size > LIMIT_BYTES
        content = b"" if too_large else file.read(LIMIT_BYTES + 1)
    if too_large or len(content) > LIMIT_BYTES:
        raise BundleRejected("too_large", f"A bundle has at most {LIMIT_BYTES} bytes.")
    check(content)
    return content


def check(content: bytes) -> None:
    """Raises ``BundleRejected`` for what is not a gzipped tar archive of plain files that stay inside it."""
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as unpacked:
            stream = _Counted(unpacked)
            with tarfile.open(fileobj=stream, mode="r|", errorlevel=2) as archive:  # type: ignore[call-overload]
                _check_members(archive)
                _check_end(archive, stream)
            _check_rest(stream)
    except (tarfile.TarError, gzip.BadGzipFile, EOFError, zlib.error, UnicodeError) as error:
        raise BundleRejected(
            "not_an_archive", "This is not a whole tar archive in gzip form."
        ) from error


class _Counted:
    """Reads no more than a bundle may unpack to, whatever its headers say."""

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
            raise BundleRejected("too_many_files", f"A bundle has at most {LIMIT_MEMBERS} files.")
        # What a header claims is skipped in small steps, so an absurd claim would take hours to find out.
        _check_size(member.offset_data + member.size)
        _check_kind(member)
        parts = _parts(member)
        same = _same_elsewhere(parts)
        if member.isfile():
            if same in files or same in folders:
                raise BundleRejected("name_twice", f"Twice, or alike: {_shown(member.name)}.")
            files[same] = member.name
        for depth in range(1, len(parts) + (0 if member.isfile() else 1)):
            folder = _same_elsewhere(parts[:depth])
            if folder in files:
                raise BundleRejected("name_twice", f"A file and a folder: {_shown(member.name)}.")
            folders[folder] = member.name
    if not files:
        raise BundleRejected("empty", "This bundle holds no files.")


def _check_kind(member: tarfile.TarInfo) -> None:
    if member.issym() or member.islnk():
        raise BundleRejected("link", f"A link: {_shown(member.name)}.")
    if member.type not in {tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.DIRTYPE}:
        raise BundleRejected("not_a_file", f"Neither a file nor a folder: {_shown(member.name)}.")
    if member.mode & 0o7000:
        raise BundleRejected(
            "special_mode", f"With a set-uid, set-gid or sticky bit: {_shown(member.name)}."
        )


def _parts(member: tarfile.TarInfo) -> list[str]:
    """The parts of a name that leads nowhere but downwards."""
    name = member.name.removeprefix("./") if member.name != "." else ""
    shown = _shown(member.name)
    if name.startswith("/"):
        raise BundleRejected("absolute_path", f"An absolute path: {shown}.")
    parts = name.split("/") if name else []
    if ".." in parts:
        raise BundleRejected("path_traversal", f"A path that leads out: {shown}.")
    if len(name) > LIMIT_NAME or any(len(part.encode()) > LIMIT_PART for part in parts):
        raise BundleRejected("name_too_long", f"Too long a name: {shown}.")
    for part in parts:
        if part in {"", "."} or NOT_IN_NAMES.search(part) or part != part.rstrip(". "):
            raise BundleRejected("unusual_name", f"A name that not every system takes: {shown}.")
        if DEVICES.fullmatch(part):
            raise BundleRejected("unusual_name", f"The name of a device on Windows: {shown}.")
    if not parts and member.isfile():
        raise BundleRejected("unusual_name", "A file without a name.")
    return parts


def _same_elsewhere(parts: list[str]) -> str:
    """What a path is to a system that knows no case and one form of each letter."""
    return normalize("NFC", "/".join(parts)).casefold()


def _check_end(archive: tarfile.TarFile, stream: _Counted) -> None:
    """The last file may claim more than there is, which the library does not mind."""
    if stream.taken < archive.offset:
        raise EOFError


def _check_rest(stream: _Counted) -> None:
    """Nothing may hide behind the end of the archive, where one reader stops and another goes on."""
    for chunk in _rest(stream):
        if chunk.strip(b"\0"):
            raise BundleRejected("trailing_data", "There is something after the archive's end.")


def _rest(stream: _Counted) -> Iterator[bytes]:
    while chunk := stream.read(READ_BYTES):
        yield chunk


def _shown(name: str) -> str:
    """A name short and harmless enough to repeat."""
    return ascii(name)[1:-1][:120]
