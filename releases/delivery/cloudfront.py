"""Purges Amazon CloudFront by invalidations. Imported only if ``CDN_PURGE`` names a distribution."""

from collections.abc import Sequence
from functools import cache
from typing import Any
from urllib.parse import urlsplit

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from django.conf import settings

from releases.delivery.cdn import PurgeFailed

# Limits of silence, as for storage.
CONNECT_SECONDS, READ_SECONDS, ATTEMPTS = 3, 8, 2
# The service has one region.
REGION = "us-east-1"
# Matches if shells reach this service through the same distribution.
UPDATE_ADDRESS = "/v1/updates/manifest*"


def invalidate(paths: Sequence[str], reference: str) -> bool:
    """Creates an invalidation; returns whether every edge has completed it.

    CloudFront answers a known reference with the existing invalidation, so a repeat queries its status. boto3 finds
    the credentials.
    """
    distribution = settings.CDN_PURGE.partition(":")[2]
    prefix = urlsplit(settings.CDN_URL).path
    # The star covers the signature beside the manifest, and any query string in a cache key.
    items = [*_without_covered([f"{prefix}/{path}*" for path in paths]), UPDATE_ADDRESS]
    try:
        answer = _client().create_invalidation(
            DistributionId=distribution,
            InvalidationBatch={
                "Paths": {"Quantity": len(items), "Items": items},
                "CallerReference": reference,
            },
        )
    except ClientError as error:
        raise PurgeFailed(_code(error)) from error
    except BotoCoreError as error:
        raise PurgeFailed("unreachable") from error
    return str(answer["Invalidation"]["Status"]).lower() == "completed"


def _without_covered(items: Sequence[str]) -> list[str]:
    """Drops paths that another path's star covers, because each path costs money."""
    return [
        each
        for each in items
        if not any(each != other and each.startswith(other.removesuffix("*")) for other in items)
    ]


def _code(error: ClientError) -> str:
    code = str(error.response.get("Error", {}).get("Code", "refused"))
    return "".join(each for each in code if each.isalnum())[:40] or "refused"


@cache
def _client() -> Any:
    config = Config(
        connect_timeout=CONNECT_SECONDS,
        read_timeout=READ_SECONDS,
        retries={"total_max_attempts": ATTEMPTS, "mode": "standard"},
    )
    return boto3.client("cloudfront", region_name=REGION, config=config)
