"""Storage of published files, which a CDN serves: local files here, S3 objects in ``object_storage.py``.

Every publish rewrites ``shell/<channel>/latest.json`` and its signature ``latest.json.minisig``. All other files
have a versioned path and never change.
"""

import os
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from enum import StrEnum
from pathlib import Path
from typing import Any, cast

from django.core.files.base import ContentFile, File
from django.core.files.storage import FileSystemStorage, default_storage

from config.platform.problems.problem import Problem, ServiceUnavailable

POINTER_CACHE = "public, max-age=60, stale-while-revalidate=300"
IMMUTABLE_CACHE = "public, max-age=31536000, immutable"
SIGNATURE_SUFFIX = ".minisig"
CONTENT_TYPES: Mapping[str, str] = {".json": "application/json", SIGNATURE_SUFFIX: "text/plain"}
# Of published files and their folders, whatever the umask: whoever serves them is often another user.
READABLE, OPEN, CLOSED = 0o644, 0o755, 0o700


class Conditions(StrEnum):
    """The way in which storage treats a write on the condition that its path is free."""

    KEPT = "kept"
    REFUSED = "refused"
    IGNORED = "ignored"


class StorageUnavailable(ServiceUnavailable):
    default_detail = "Storage failed. Publish the same document again to finish."


class PathTaken(Problem):
    """Another file has the path of a version."""

    code = "version_conflict"
    status = 409
    title = "Version conflict"
    default_detail = "Storage already has different bytes at this version's path and keeps them."


@contextmanager
def unavailable_on(*errors: type[Exception]) -> Iterator[None]:
    """Raises ``StorageUnavailable`` in place of these errors; also a decorator."""
    try:
        yield
    except errors as error:
        raise StorageUnavailable from error


def pointer_path(channel: str) -> str:
    """The path of a channel's manifest; its signature is beside it."""
    return f"shell/{channel}/latest.json"


def cache_control_of(name: str) -> str:
    """The cache header of a file."""
    changing = name.removesuffix(SIGNATURE_SUFFIX).endswith("/latest.json")
    return POINTER_CACHE if changing else IMMUTABLE_CACHE


def put(name: str, content: bytes) -> None:
    """Writes a file atomically; raises ``StorageUnavailable``."""
    default_storage.save(name, ContentFile(content))


def put_once(name: str, content: bytes) -> None:
    """Writes a file that never changes; a repeat with the same bytes succeeds.

    Raises ``PathTaken`` if the path has other bytes, which stay, and ``StorageUnavailable``. Where storage keeps no
    ``conditions``, only a lock of the caller's excludes two first writers.
    """
    if not _storage().create(name, content) and _storage().content(name) != content:
        raise PathTaken


def conditions() -> Conditions:
    """The way in which storage treats conditional writes, asked once per process; raises ``StorageUnavailable``."""
    return _storage().conditions()


def _storage() -> "Files":
    # ``Objects`` has the same methods, which Django's interface lacks.
    return cast("Files", default_storage)


def remove(name: str) -> None:
    """Removes a file if it exists; raises ``StorageUnavailable``."""
    default_storage.delete(name)


class Files(FileSystemStorage):
    """Files of this host, replaced atomically. Their server sends the cache header of :func:`cache_control_of`."""

    def __init__(self, location: str) -> None:
        super().__init__(location=location, allow_overwrite=True)

    @unavailable_on(OSError)
    def _save(self, name: str, content: "File[Any]") -> str:
        _replace(self._place(name), content.read())
        return name

    @unavailable_on(OSError)
    def delete(self, name: str) -> None:
        with suppress(FileNotFoundError):
            super().delete(name)
            _sync_folder(Path(self.path(name)).parent)

    @unavailable_on(OSError)
    def content(self, name: str) -> bytes:
        return Path(self.path(name)).read_bytes()

    def conditions(self) -> Conditions:
        return Conditions.KEPT

    @unavailable_on(OSError)
    def create(self, name: str, content: bytes) -> bool:
        """Writes a new file; returns False if one exists."""
        return _replace(self._place(name), content, only_new=True)

    def _place(self, name: str) -> Path:
        """The path of a file, in a folder that is there."""
        path = Path(self.path(name))
        _make_folder(path.parent, within=Path(self.location))
        return path


def _replace(path: Path, content: bytes, *, only_new: bool = False) -> bool:
    """Syncs a file to disk, then gives it its name. Returns False if ``only_new`` and the name is taken."""
    descriptor, new = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as out:
            out.write(content)
            out.flush()
            os.fchmod(descriptor, READABLE)
            os.fsync(descriptor)
        if only_new:
            # A hard link fails if the name is taken.
            path.hardlink_to(new)
            Path(new).unlink()
        else:
            Path(new).replace(path)
    except FileExistsError:
        Path(new).unlink(missing_ok=True)
        return False
    except BaseException:
        Path(new).unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)
    return True


def _make_folder(folder: Path, *, within: Path) -> None:
    """Makes what is missing of a folder's path. What others have made keeps the mode that they gave it."""
    for each in (*reversed(folder.parents), folder):
        try:
            each.mkdir()
            is_closed = True
        except OSError:
            # It is there, perhaps by another publish; its parent may be nobody's to write.
            if not each.is_dir():
                raise
            found = each.stat()
            is_ours = within in each.parents and found.st_uid == os.getuid()
            # Made by an earlier release under a strict umask.
            is_closed = is_ours and stat.S_IMODE(found.st_mode) == CLOSED
        if is_closed:
            each.chmod(OPEN)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
