from django.urls import path

from accounts.api.connections.views import ConnectionViewSet

app_name = "connections"

urlpatterns = [
    path("connections", ConnectionViewSet.as_view({"get": "list"}), name="list"),
    path(
        "connections/<slug:provider>/authorize",
        ConnectionViewSet.as_view({"post": "authorize"}),
        name="authorize",
    ),
    path(
        "connections/<slug:provider>/complete",
        ConnectionViewSet.as_view({"post": "complete"}),
        name="complete",
    ),
    path(
        "connections/<slug:provider>/token",
        ConnectionViewSet.as_view({"post": "token"}),
        name="token",
    ),
    path(
        "connections/<slug:provider>",
        ConnectionViewSet.as_view({"delete": "destroy"}),
        name="connection",
    ),
]
