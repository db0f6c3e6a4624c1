"""Storage of published files in an S3 bucket. Imported only if ``STORAGE_URL`` names one."""

import posixpath
from contextlib import suppress
from typing import Any
from uuid import uuid4

from boto3.s3.transfer import TransferConfig
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from django.core.files.base import File
from storages.backends.s3 import S3Storage

from releases.delivery.storage import (
    CONTENT_TYPES,
    Conditions,
    StorageUnavailable,
    cache_control_of,
    unavailable_on,
)

# All attempts together end before the lease of a publish does. Each limit bounds one silence: boto3 has no limit for
# a whole answer, which may trickle.
CONNECT_SECONDS, READ_SECONDS, ATTEMPTS = 3, 8, 2
FAILURES = (BotoCoreError, ClientError, OSError)
# 409: another writer of the same path is about to finish. 304: 412 of servers that treat a write as a read.
TAKEN = {304, 409, 412}
NOT_FOUND, NOT_IMPLEMENTED = 404, 501
# Beside what is written on this condition, where a policy for paths allows the same; no app has such a name.
PROBE = "apps/.probe-{}"


class Objects(S3Storage):  # type: ignore[misc]  # django-storages has no types
    """Objects with the content type and the cache header of their path. A put is atomic.

    boto3 finds the credentials and the default region. ``_seen``: how the server treats conditional writes, once known.
    """

    _seen: Conditions | None = None

    def __init__(
        self, *, bucket: str, prefix: str = "", endpoint: str = "", region: str = ""
    ) -> None:
        super().__init__(
            bucket_name=bucket,
            location=prefix,
            endpoint_url=endpoint or None,
            region_name=region or None,
            querystring_auth=False,
            # Documents this small gain nothing from threads.
            transfer_config=TransferConfig(use_threads=False),
            client_config=_client_config(own_endpoint=bool(endpoint)),
        )

    def get_object_parameters(self, name: str) -> dict[str, Any]:
        suffix = f".{name.rpartition('.')[2]}"
        kind = CONTENT_TYPES.get(suffix, "application/octet-stream")
        return {"CacheControl": cache_control_of(name), "ContentType": kind}

    @unavailable_on(*FAILURES)
    def _save(self, name: str, content: "File[Any]") -> str:
        return str(super()._save(name, content))

    @unavailable_on(*FAILURES)
    def delete(self, name: str) -> None:
        super().delete(name)

    def _object(self, name: str) -> Any:
        return self.bucket.Object(posixpath.join(self.location, name))

    @unavailable_on(*FAILURES)
    def content(self, name: str) -> bytes:
        return bytes(self._object(name).get()["Body"].read())

    @unavailable_on(*FAILURES)
    def create(self, name: str, content: bytes) -> bool:
        """Writes a new object; returns False if one exists.

        Without conditional writes it looks first and reads back what it wrote: False too if that is another's.
        """
        if self.conditions() == Conditions.KEPT:
            return self._put_if_new(name, content)
        if self._exists(name):
            return False
        self._put(name, content)
        return self.content(name) == content

    @unavailable_on(*FAILURES)
    def conditions(self) -> Conditions:
        """The way in which the server treats conditional writes, found out by two to a path that is thrown away."""
        if self._seen is None:
            path = PROBE.format(uuid4().hex)
            try:
                self._seen = self._probe(path)
            finally:
                # A policy may forbid it: a few bytes are left.
                with suppress(StorageUnavailable):
                    self.delete(path)
        return self._seen

    def _probe(self, path: str) -> Conditions:
        try:
            first = self._put_if_new(path, b"first")
        except ClientError as error:
            if _status(error) >= 500 and _status(error) != NOT_IMPLEMENTED:
                raise
            # Fails where the server refuses more than the condition.
            self._put(path, b"first")
            return Conditions.REFUSED
        if first:
            return Conditions.IGNORED if self._put_if_new(path, b"second") else Conditions.KEPT
        # Taken by this write, which the library has repeated, or by nothing. A policy may forbid to look in between.
        return Conditions.KEPT if self._exists(path) else Conditions.REFUSED

    def _put_if_new(self, name: str, content: bytes) -> bool:
        try:
            self._put(name, content, IfNoneMatch="*")
        except ClientError as error:
            if _status(error) in TAKEN:
                return False
            raise
        return True

    def _put(self, name: str, content: bytes, **condition: str) -> None:
        self._object(name).put(Body=content, **condition, **self.get_object_parameters(name))

    def _exists(self, name: str) -> bool:
        try:
            self._object(name).load()
        except ClientError as error:
            if _status(error) == NOT_FOUND:
                return False
            raise
        return True


def _status(error: ClientError) -> int:
    return int(error.response["ResponseMetadata"]["HTTPStatusCode"])


def _client_config(*, own_endpoint: bool) -> Config:
    return Config(
        connect_timeout=CONNECT_SECONDS,
        read_timeout=READ_SECONDS,
        retries={"total_max_attempts": ATTEMPTS, "mode": "standard"},
        # Other S3 servers seldom have a host name for each bucket, and some lack the newer checksums.
        s3={"addressing_style": "path" if own_endpoint else "auto"},
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
    )
