"""Addresses of pages that have another one now."""

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse

BRAKES = "/admin/licensing/brake/"


def held_suspensions(request: HttpRequest) -> HttpResponse:
    """Redirects what is below ``BRAKES``, with its query, method and form."""
    page = reverse("admin:licensing_heldsuspension_changelist")
    address = request.get_full_path().replace(BRAKES, page, 1)
    return HttpResponseRedirect(address, preserve_request=True)
