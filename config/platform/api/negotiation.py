"""Chooses the parser of a body and the media type of an answer."""

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from rest_framework.exceptions import NotAcceptable
from rest_framework.negotiation import DefaultContentNegotiation
from rest_framework.parsers import BaseParser
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request


class Negotiation(DefaultContentNegotiation):
    """Chooses as the library does, but has no parser for a media range such as ``*/*``; the library takes any."""

    def select_parser(self, request: Request, parsers: Iterable[BaseParser]) -> Any:
        if "*" in (request.content_type or "").partition(";")[0]:
            return None
        return super().select_parser(request, parsers)


class WhateverAccept(Negotiation):
    """Falls back to the first renderer where the caller accepts none; a single renderer is not negotiated."""

    def select_renderer(
        self, request: Request, renderers: Iterable[BaseRenderer], format_suffix: str | None = None
    ) -> tuple[BaseRenderer, str]:
        known = list(renderers)
        chosen: tuple[BaseRenderer, str] = (known[0], known[0].media_type)
        if len(known) > 1:
            with suppress(NotAcceptable):
                chosen = super().select_renderer(request, known, format_suffix)
        return chosen
