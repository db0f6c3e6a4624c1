"""Every address of the service."""

from django.contrib import admin
from django.urls import include, path, re_path
from django.views.generic import RedirectView

from accounts.admin.second_factor.urls import passkey_urls
from accounts.keys.views import KeysView
from config.platform.api.docs import DocsView, SchemaView
from config.platform.problems import rendering as handlers
from licensing.admin.former_addresses import held_suspensions

LEAD_ON = {"http_method_names": ["get", "head"]}

urlpatterns = [
    # Paths that people type; every other path must be exact.
    path("", RedirectView.as_view(pattern_name="docs", **LEAD_ON), name="root"),
    path("docs", RedirectView.as_view(pattern_name="docs", **LEAD_ON), name="docs-without-slash"),
    path(
        "admin",
        RedirectView.as_view(pattern_name="admin:index", **LEAD_ON),
        name="admin-without-slash",
    ),
    path(".well-known/jwks.json", KeysView.as_view(), name="jwks"),
    path("v1/auth/", include("accounts.api.urls")),
    path("v1/license/", include("licensing.urls")),
    path("v1/llm/", include("llmproxy.api.urls")),
    path("v1/usage/", include("usage.urls")),
    path("v1/internal/", include("releases.urls")),
    path("v1/updates/", include("releases.updates_urls")),
    # Without trailing slashes, as their addresses have none.
    path("v1/", include("accounts.api.connections.urls")),
    path("v1/", include("llmproxy.keys.urls")),
    path("v1/", include("telemetry.urls")),
    path("v1/", include("releases.micro_apps.urls")),
    path("v1/schema", SchemaView.as_view(), name="schema"),
    path("account/", include("accounts.people.urls")),
    path("docs/", DocsView.as_view(), name="docs"),
    path("admin/second-factor/", include("accounts.admin.second_factor.urls")),
    path("admin/passkeys/", include(passkey_urls)),
    # Mails and bookmarks of before hold it, and forms that a process of the release before has shown.
    re_path("^admin/licensing/brake/", held_suspensions, name="held-suspensions-of-before"),
    path("admin/", admin.site.urls),
]

handler400 = handlers.bad_request
handler403 = handlers.permission_denied
handler404 = handlers.page_not_found
handler500 = handlers.server_error
