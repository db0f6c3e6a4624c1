"""In which form to answer. Nearly every caller takes anything, or names JSON; that needs no weighing of media types."""

from collections.abc import Iterable

from rest_framework.exceptions import NotAcceptable
from rest_framework.negotiation import DefaultContentNegotiation
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request

ANYTHING = "*/*"


class Negotiation(DefaultContentNegotiation):
    """REST framework's, which is asked where the caller says more than that."""

    def select_renderer(
        self, request: Request, renderers: Iterable[BaseRenderer], format_suffix: str | None = None
    ) -> tuple[BaseRenderer, str]:
        known = list(renderers)
        first = known[0]
        accepted = request.META.get("HTTP_ACCEPT", ANYTHING)
        if not format_suffix and accepted in {ANYTHING, first.media_type}:
            return first, first.media_type
        chosen: tuple[BaseRenderer, str] = super().select_renderer(request, known, format_suffix)
        return chosen


class WhateverAccept(Negotiation):
    """Answers in the first type where the caller accepts none of ours, instead of refusing."""

    def select_renderer(
        self, request: Request, renderers: Iterable[BaseRenderer], format_suffix: str | None = None
    ) -> tuple[BaseRenderer, str]:
        known = list(renderers)
        try:
            return super().select_renderer(request, known, format_suffix)
        except NotAcceptable:
            return known[0], known[0].media_type
