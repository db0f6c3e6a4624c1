"""The name of a request's route, for log lines and problems; a path may contain a token."""

from django.http import HttpRequest


def route_of(request: HttpRequest) -> str:
    """Returns the name of a request's route, or its pattern; ``-`` without a route."""
    match = request.resolver_match
    if match is None:
        return "-"
    return match.view_name if match.url_name else match.route
