"""Chooses the media type of an answer."""

from collections.abc import Iterable

from rest_framework.exceptions import NotAcceptable
from rest_framework.negotiation import DefaultContentNegotiation
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request


class FirstForAll(DefaultContentNegotiation):
    """The library's choice, without its search for a caller that accepts everything, as most do."""

    def select_renderer(
        self, request: Request, renderers: Iterable[BaseRenderer], format_suffix: str | None = None
    ) -> tuple[BaseRenderer, str]:
        if request.META.get("HTTP_ACCEPT", "*/*") == "*/*":
            first = next(iter(renderers))
            return first, first.media_type
        chosen: tuple[BaseRenderer, str] = super().select_renderer(
            request, renderers, format_suffix
        )
        return chosen


class WhateverAccept(FirstForAll):
    """Falls back to the first renderer where the caller accepts none, instead of refusing."""

    def select_renderer(
        self, request: Request, renderers: Iterable[BaseRenderer], format_suffix: str | None = None
    ) -> tuple[BaseRenderer, str]:
        known = list(renderers)
        try:
            return super().select_renderer(request, known, format_suffix)
        except NotAcceptable:
            return known[0], known[0].media_type
