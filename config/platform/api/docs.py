"""Serves the API's schema: as a document for programs, and as a page for people."""

import hashlib
from functools import cache
from typing import Any

from django.http import HttpResponse
from django.http.response import HttpResponseBase
from django.utils.cache import patch_vary_headers
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.renderers import (
    OpenApiJsonRenderer,
    OpenApiJsonRenderer2,
    OpenApiYamlRenderer,
    OpenApiYamlRenderer2,
)
from drf_spectacular.views import SpectacularSwaggerSplitView
from rest_framework.request import Request
from rest_framework.response import Response

from config.platform.api.etags import unless_known
from config.platform.api.views import APIView, ForEverybody

CACHE_CONTROL = "public, max-age=300"
# Swagger UI needs its own files, and the images embedded in its style sheet.
DOCS_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


class CompactJson(OpenApiJsonRenderer2):
    def get_indent(self, *args: Any, **kwargs: Any) -> None:
        """Indentation would make the document four times as long."""


class CompactOpenApiJson(CompactJson):
    media_type = OpenApiJsonRenderer.media_type


class SchemaView(ForEverybody, APIView):
    """Serves ``/v1/schema``: as YAML if the caller asks for it, else as JSON whatever the caller accepts."""

    schema = None
    renderer_classes = (CompactJson, CompactOpenApiJson, OpenApiYamlRenderer2, OpenApiYamlRenderer)

    def get(self, request: Request) -> HttpResponseBase:
        index = self.renderer_classes.index(type(request.accepted_renderer))
        body, etag = _document(index)
        response = HttpResponse(body, content_type=request.accepted_renderer.media_type)
        response["ETag"] = etag
        response["Cache-Control"] = CACHE_CONTROL
        patch_vary_headers(response, ["Accept"])
        return unless_known(request, response)


class DocsView(ForEverybody, SpectacularSwaggerSplitView):
    """Serves ``/docs/``: the schema as a page without inline scripts, all of whose files are the service's own."""

    schema = None
    template_name = "docs.html"
    template_name_js = "docs.js"

    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        response: Response = super().get(request, *args, **kwargs)  # type: ignore[no-untyped-call]
        response["Content-Security-Policy"] = DOCS_POLICY
        response["Cache-Control"] = CACHE_CONTROL
        return response


@cache
def _document(renderer: int) -> tuple[bytes, str]:
    """Returns the schema in one of the view's formats, and its ETag; each process renders it once."""
    generator: Any = SchemaGenerator
    document = generator().get_schema(request=None, public=True)
    body = SchemaView.renderer_classes[renderer]().render(document, renderer_context={})
    return body, f'"{hashlib.sha256(body).hexdigest()[:32]}"'
