"""Amazon CloudFront: an invalidation by the distribution's id. Loaded only where ``CDN_PURGE`` names one."""

from collections.abc import Sequence
from functools import cache
from typing import Any
from urllib.parse import urlsplit

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from django.conf import settings

from releases.delivery.cdn import PurgeFailed

# Of silence, as for storage.
CONNECT_SECONDS, READ_SECONDS, ATTEMPTS = 3, 8, 2
# The service has one region.
REGION = "us-east-1"
# Where shells ask the service itself through the same distribution; else it matches nothing.
UPDATE_ADDRESS = "/v1/updates/manifest*"


def invalidate(paths: Sequence[str], reference: str) -> bool:
    """One invalidation; its status tells whether every edge has done it.

    CloudFront knows a reference again: asked twice it answers with the invalidation that it has, and so this is also
    how to ask how far it is. Credentials are found as boto3 finds them.
    """
    distribution = settings.CDN_PURGE.partition(":")[2]
    prefix = urlsplit(settings.CDN_URL).path
    # The star takes in the signature beside the manifest, and whatever query a cache tells apart.
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
        raise PurgeFailed(_word(error)) from error
    except BotoCoreError as error:
        raise PurgeFailed("unreachable") from error
    return str(answer["Invalidation"]["Status"]).lower() == "completed"


def _without_covered(items: Sequence[str]) -> list[str]:
    """Each path costs; one that another one's star takes in is left out."""
    return [
        each
        for each in items
        if not any(each != other and each.startswith(other.removesuffix("*")) for other in items)
    ]


def _word(error: ClientError) -> str:
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
