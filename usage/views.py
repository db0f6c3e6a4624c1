"""Usage over HTTP."""

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from config.platform.api.views import ViewSet
from licensing.callers import caller_of
from usage.limits import PlanCaps
from usage.serializers import UsageSerializer
from usage.spending.summaries import summary


class UsageViewSet(ViewSet):
    """The caller's usage."""

    @extend_schema(operation_id="usage_me", responses=UsageSerializer, tags=["usage"])
    def me(self, request: Request) -> Response:
        """The caller's month: used, in flight and remaining tokens, and the series by day and by model."""
        caller = caller_of(request)
        plan = PlanCaps.of(caller)
        month = summary(user_id=caller.user_id, plan=plan, now=timezone.now())
        return Response(UsageSerializer(month).data, headers={"Cache-Control": "private, no-cache"})
