"""The view set of every call under ``/v1/``."""

from typing import Any

from django.http import HttpResponseBase
from rest_framework import viewsets
from rest_framework.request import Request
from rest_framework.response import Response


class ViewSet(viewsets.ViewSet):
    """REST framework's, which lets go of a request once it is answered.

    Made for one request, a view knows its own bound methods, and the request's parsing knows the view: what a call has
    used would wait, all of it together, until the collector of garbage finds it. That looks through whatever is alive
    to do so, and stops every stream of the process meanwhile.
    """

    def dispatch(self, request: Any, *args: Any, **kwargs: Any) -> HttpResponseBase:
        response: HttpResponseBase = super().dispatch(request, *args, **kwargs)
        asked: Request = self.request
        asked.parser_context.clear()
        self.__dict__.clear()
        if isinstance(response, Response):
            response.add_post_render_callback(_let_go)
        return response


def _let_go(response: Response) -> None:
    """Of what only the renderer had to know, which is the answer itself among others."""
    response.renderer_context.clear()  # type: ignore[attr-defined]  # dispatch() has set it
