"""Where what is published lies, for a CDN to serve: files here, objects in ``object_storage.py``.

``shell/<channel>/latest.json`` is rewritten by every publish, and its signature ``latest.json.minisig`` with
it. Everything else has a versioned path and never changes.
"""

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from django.core.files.base import ContentFile, File
from django.core.files.storage import FileSystemStorage, default_storage

from config.problems import ServiceUnavailable

POINTER_CACHE = "public, max-age=60, stale-while-revalidate=300"
IMMUTABLE_CACHE = "public, max-age=31536000, immutable"
SIGNATURE_SUFFIX = ".minisig"
CONTENT_TYPES: Mapping[str, str] = {".json": "application/json", SIGNATURE_SUFFIX: "text/plain"}
READABLE = 0o644


class StorageUnavailable(ServiceUnavailable):
    default_detail = (
        "Storage did not take the release. Publish the same document again to finish it."
    )


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


def _replace(path: Path, content: bytes) -> None:
    """On disk before it is seen, and seen before this returns."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, new = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as out:
            out.write(content)
            out.flush()
            os.fchmod(descriptor, READABLE)
            os.fsync(descriptor)
        Path(new).replace(path)
    except BaseException:
        Path(new).unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
