"""Views of telemetry."""

from typing import Any, cast

from django.utils import timezone
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from config.platform.api.parsers import ObjectParser
from config.platform.api.schema import problems
from config.platform.api.views import ViewSet
from config.platform.edge.ratelimits import limits as ratelimits
from licensing.callers import caller_of
from telemetry.intake import take_in
from telemetry.schema import BATCH
from telemetry.serializers import TakenSerializer


class BatchParser(ObjectParser):
    """Leaves the values to intake, NaN among them, which rejects single events instead of the batch."""

    checks_values = False
    takes_constants = True


class TelemetryViewSet(ViewSet):
    """Takes in events of shells, also of suspended clients."""

    # Batches have a limit of their own.
    throttle_classes = ()
    parser_classes = (BatchParser,)

    @problems("rate_limited", "telemetry_full")
    @extend_schema(
        operation_id="telemetry",
        request={"application/json": BATCH},
        responses={
            202: OpenApiResponse(TakenSerializer, description="The accepted events are committed.")
        },
        tags=["telemetry"],
    )
    def take_in(self, request: Request) -> Response:
        """Report a batch of events: at most 500, and 1 MiB.

        A larger one gets 413 with `max_bytes`, and with `max_events` if it has too many events. After no answer,
        a 429 or a 5xx, send the same batch again: stored events count as duplicates. A 429 names when; that of
        `telemetry_full` comes once what the client, or a quarter of it the person, may store in a day is used up.
        """
        now = timezone.now()
        caller = caller_of(request)
        ratelimits.count("telemetry.user", key=str(caller.user_id), now=now)
        assert caller.client_id is not None
        taken = take_in(
            batch=cast("dict[str, Any]", request.data),
            client_id=caller.client_id,
            user_id=caller.user_id,
            now=now,
            # A chunked body has a length too: the most that it may be.
            size=int(request.META.get("CONTENT_LENGTH") or 0),
        )
        headers = {"Cache-Control": "no-store"}
        return Response(TakenSerializer(taken).data, status=202, headers=headers)
