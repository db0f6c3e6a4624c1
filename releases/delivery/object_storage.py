"""Storage of published files in an S3 bucket. Imported only if ``STORAGE_URL`` names one."""

import posixpath
from typing import Any

from boto3.s3.transfer import TransferConfig
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from django.core.files.base import File
from storages.backends.s3 import S3Storage

from releases.delivery.storage import CONTENT_TYPES, cache_control_of, unavailable_on

# All attempts together end before the lease of a publish does. Each limit bounds one silence: boto3 has no limit for
# a whole answer, which may trickle.
CONNECT_SECONDS, READ_SECONDS, ATTEMPTS = 3, 8, 2
FAILURES = (BotoCoreError, ClientError, OSError)


class Objects(S3Storage):  # type: ignore[misc]  # django-storages has no types
    """Objects with the content type and the cache header of their path. A put is atomic.

    boto3 finds the credentials and the default region.
    """

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
        """Writes a new object; returns False if one exists."""
        try:
            self._object(name).put(
                Body=content, IfNoneMatch="*", **self.get_object_parameters(name)
            )
        except ClientError as error:
            # 409: another writer of the same path is about to finish.
            if error.response["ResponseMetadata"]["HTTPStatusCode"] in {409, 412}:
                return False
            raise
        return True


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
