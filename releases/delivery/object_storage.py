"""What is published as objects of an S3 bucket. Loaded only where ``STORAGE_URL`` names one."""

from typing import Any

from boto3.s3.transfer import TransferConfig
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from django.core.files.base import File
from storages.backends.s3 import S3Storage
from storages.utils import clean_name

from releases.delivery.storage import CONTENT_TYPES, StorageUnavailable, cache_control_of

# Together shorter than the lease of a publish, so that none goes on after its lease where storage is silent. Each
# bounds one silence: an answer that trickles takes as long as it likes, and boto3 has no limit for the whole.
CONNECT_SECONDS, READ_SECONDS, ATTEMPTS = 3, 8, 2


class Objects(S3Storage):  # type: ignore[misc]  # django-storages has no types
    """Objects with the content type and the cache header of their path; a put is seen whole or not at all.

    Credentials and the default region are found as boto3 finds them.
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
            # Threads would bring nothing for documents this small.
            transfer_config=TransferConfig(use_threads=False),
            client_config=_client_config(own_endpoint=bool(endpoint)),
        )

    def get_object_parameters(self, name: str) -> dict[str, Any]:
        suffix = f".{name.rpartition('.')[2]}"
        kind = CONTENT_TYPES.get(suffix, "application/octet-stream")
        return {"CacheControl": cache_control_of(name), "ContentType": kind}

    def _save(self, name: str, content: "File[Any]") -> str:
        try:
            return str(super()._save(name, content))
        except (BotoCoreError, ClientError, OSError) as error:
            raise StorageUnavailable from error

    def delete(self, name: str) -> None:
        try:
            super().delete(name)
        except (BotoCoreError, ClientError, OSError) as error:
            raise StorageUnavailable from error

    def content(self, name: str) -> bytes:
        try:
            stored = self.bucket.Object(self._normalize_name(clean_name(name))).get()
            return bytes(stored["Body"].read())
        except (BotoCoreError, ClientError, OSError) as error:
            raise StorageUnavailable from error

    def create(self, name: str, content: bytes) -> bool:
        """Writes an object where there is none; whether there was none."""
        try:
            self.bucket.Object(self._normalize_name(clean_name(name))).put(
                Body=content, IfNoneMatch="*", **self.get_object_parameters(name)
            )
        except ClientError as error:
            # 409: another is writing the same path just now, and one of the two has it in a moment.
            if error.response["ResponseMetadata"]["HTTPStatusCode"] in {409, 412}:
                return False
            raise StorageUnavailable from error
        except (BotoCoreError, OSError) as error:
            raise StorageUnavailable from error
        return True


def _client_config(*, own_endpoint: bool) -> Config:
    return Config(
        connect_timeout=CONNECT_SECONDS,
        read_timeout=READ_SECONDS,
        retries={"total_max_attempts": ATTEMPTS, "mode": "standard"},
        # Other makes of S3 seldom have a host name for each bucket, and not all know the newer checksums.
        s3={"addressing_style": "path" if own_endpoint else "auto"},
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
    )
