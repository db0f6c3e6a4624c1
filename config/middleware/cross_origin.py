"""The headers for pages of other origins (``CORS_ORIGINS``), by the library where a request names an origin."""

from corsheaders.middleware import CorsMiddleware
from django.http import HttpRequest, HttpResponseBase
from django.utils.cache import patch_vary_headers


class CrossOriginMiddleware(CorsMiddleware):
    """Parses no headers for a request without an origin, whose answer says only that the origin counts."""

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        if "HTTP_ORIGIN" in request.META or request.method == "OPTIONS":
            return super().__call__(request)  # type: ignore[return-value]  # there is no ASGI here
        response: HttpResponseBase = self.get_response(request)  # type: ignore[assignment]  # as above
        patch_vary_headers(response, ("origin",))
        return response
