"""What pages of other origins may do (``CORS_ORIGINS``), asked of the library only where there is such a page."""

from corsheaders.middleware import CorsMiddleware
from django.http import HttpRequest, HttpResponseBase
from django.utils.cache import patch_vary_headers


class CrossOriginMiddleware(CorsMiddleware):
    """The library's own. A request that names no origin is from no page, and its answer says only that one counts."""

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        if "HTTP_ORIGIN" in request.META or request.method == "OPTIONS":
            return super().__call__(request)  # type: ignore[return-value]  # never awaited: there is no ASGI here
        response = self.get_response(request)
        assert isinstance(response, HttpResponseBase)
        if "Vary" in response.headers:
            patch_vary_headers(response, ("origin",))
        else:
            response.headers["Vary"] = "origin"
        return response
