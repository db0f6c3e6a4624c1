"""Where what is published lies, for a CDN to serve: files here, objects in ``object_storage.py``.

``shell/<channel>/latest.json`` is rewritten by every publish, and its signature ``latest.json.minisig`` with
it. Everything else has a versioned path and never changes.
"""

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from django.core.files.base import ContentFile, File
from django.core.files.storage import FileSystemStorage, default_storage

from config.api.problems import Problem, ServiceUnavailable

POINTER_CACHE = "public, max-age=60, stale-while-revalidate=300"
IMMUTABLE_CACHE = "public, max-age=31536000, immutable"
SIGNATURE_SUFFIX = ".minisig"
CONTENT_TYPES: Mapping[str, str] = {".json": "application/json", SIGNATURE_SUFFIX: "text/plain"}
READABLE = 0o644


class StorageUnavailable(ServiceUnavailable):
    default_detail = (
        "Storage did not take the release. Publish the same document again to finish it."
    )


class PathTaken(Problem):
    """What lies where a version belongs is not what was published as that version."""

    code = "version_conflict"
    status = 409
    title = "Version conflict"
    default_detail = "Storage holds other bytes at this version's path, and they stay."


def pointer_path(channel: str) -> str:
    """Where a channel's manifest lies; its signature is beside it."""
    return f"shell/{channel}/latest.json"


def cache_control_of(name: str) -> str:
    """The cache header that an object is served with."""
    changing = name.removesuffix(SIGNATURE_SUFFIX).endswith("/latest.json")
    return POINTER_CACHE if changing else IMMUTABLE_CACHE


def put(name: str, content: bytes) -> None:
    """Writes one object, whole or not at all; raises ``StorageUnavailable``."""
    default_storage.save(name, ContentFile(content))


def put_once(name: str, content: bytes) -> None:
    """Writes an object that never changes; the same bytes again are as good as done.

    Raises ``PathTaken`` where other bytes lie there already, which stay, and ``StorageUnavailable``.
    """
    # Both kinds of storage here can; Django's interface does not know it.
    created = cast("Files", default_storage).create(name, content)
    if not created and cast("Files", default_storage).content(name) != content:
        raise PathTaken


def remove(name: str) -> None:
    """Takes one object away, where it is there; raises ``StorageUnavailable``."""
    default_storage.delete(name)


class Files(FileSystemStorage):
    """Files of this host, replaced in one step: a reader gets the old file or the new one.

    A file has no cache header; the server that serves them sends :func:`cache_control_of`'s.
    """

    def __init__(self, location: str) -> None:
        super().__init__(location=location, allow_overwrite=True)

    def _save(self, name: str, content: "File[Any]") -> str:
        try:
            _replace(Path(self.path(name)), content.read())
        except OSError as error:
            raise StorageUnavailable from error
        return name

    def delete(self, name: str) -> None:
        try:
            super().delete(name)
            _sync_folder(Path(self.path(name)).parent)
        except FileNotFoundError:
            return
        except OSError as error:
            raise StorageUnavailable from error

    def content(self, name: str) -> bytes:
        try:
            return Path(self.path(name)).read_bytes()
        except OSError as error:
            raise StorageUnavailable from error

    def create(self, name: str, content: bytes) -> bool:
        """Writes a file where there is none; whether there was none."""
        try:
            return _replace(Path(self.path(name)), content, only_new=True)
        except OSError as error:
            raise StorageUnavailable from error


def _replace(path: Path, content: bytes, *, only_new: bool = False) -> bool:
    """On disk before it is seen, and seen before this returns; False if it may not replace what is there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, new = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as out:
            out.write(content)
            out.flush()
            os.fchmod(descriptor, READABLE)
            os.fsync(descriptor)
        if only_new:
            # A second name for it, which is given only where that is free.
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


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
