"""Base classes of REST views that leave no reference cycles to the garbage collector.

REST framework's view, request and response refer to each other: some 60 objects per request, whose collection pauses
all answers of a process.
"""

from typing import Any

from rest_framework import views, viewsets
from rest_framework.permissions import AllowAny
from rest_framework.request import Request
from rest_framework.response import Response

from config.platform.api.negotiation import WhateverAccept


class ForEverybody(views.APIView):
    """A view that needs no token, and answers whatever the caller accepts."""

    authentication_classes = ()
    permission_classes = (AllowAny,)
    content_negotiation_class = WhateverAccept


class APIView(views.APIView):
    """Clears itself once its answer is rendered."""

    def finalize_response(
        self, request: Request, response: Response, *args: Any, **kwargs: Any
    ) -> Any:
        final: Any = super().finalize_response(request, response, *args, **kwargs)
        if isinstance(final, Response):
            final.add_post_render_callback(_empty)
        else:
            _empty_view(self)
        return final


class ViewSet(viewsets.ViewSetMixin, APIView):
    """Does the same for a view of several actions."""


def _empty(response: Any) -> None:
    _empty_view(response.renderer_context["view"])
    response.renderer_context.clear()


def _empty_view(view: views.APIView) -> None:
    view.request.parser_context.clear()
    vars(view).clear()
