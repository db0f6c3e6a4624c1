"""Chooses the parser of a body and the media type of an answer."""

from collections.abc import Iterable
from typing import Any

from rest_framework.exceptions import NotAcceptable
from rest_framework.negotiation import DefaultContentNegotiation
from rest_framework.parsers import BaseParser
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request


class FirstForAll(DefaultContentNegotiation):
    """The library's choice, without its search for a caller that accepts everything, as most do.

    A body has one media type; the library would take a range, such as ``*/*``, for every type in it.
    """

    def select_parser(self, request: Request, parsers: Iterable[BaseParser]) -> Any:
        if "*" in (request.content_type or "").partition(";")[0]:
            return None
        return super().select_parser(request, parsers)

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
