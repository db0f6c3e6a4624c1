"""The base of REST views, which leaves nothing for the garbage collector.

REST framework's view, request and response name each other: some 60 objects a request, and a search for them stops all
answers of its process.
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
    """A view that is emptied once its answer is rendered."""

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
    """The same for several actions."""


def _empty(response: Any) -> None:
    _empty_view(response.renderer_context["view"])
    response.renderer_context.clear()


def _empty_view(view: views.APIView) -> None:
    view.request.parser_context.clear()
    vars(view).clear()
