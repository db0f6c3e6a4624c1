"""Chooses the media type of an answer."""

from collections.abc import Iterable

from rest_framework.exceptions import NotAcceptable
from rest_framework.negotiation import DefaultContentNegotiation
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request


class WhateverAccept(DefaultContentNegotiation):
    """Falls back to the first renderer where the caller accepts none, instead of refusing."""

    def select_renderer(
        self, request: Request, renderers: Iterable[BaseRenderer], format_suffix: str | None = None
    ) -> tuple[BaseRenderer, str]:
        known = list(renderers)
        try:
            chosen: tuple[BaseRenderer, str] = super().select_renderer(
                request, known, format_suffix
            )
        except NotAcceptable:
            return known[0], known[0].media_type
        return chosen
