from django.urls import path

from accounts.api.views import (
    AccessViewSet,
    MeViewSet,
    PasswordResetViewSet,
    PasswordViewSet,
    SessionViewSet,
)

app_name = "accounts"

urlpatterns = [
    path("login", AccessViewSet.as_view({"post": "login"}), name="login"),
    path("refresh", AccessViewSet.as_view({"post": "refresh"}), name="refresh"),
    path("logout", AccessViewSet.as_view({"post": "logout"}), name="logout"),
    path(
        "sessions",
        SessionViewSet.as_view({"get": "list", "delete": "destroy_all"}),
        name="sessions",
    ),
    path("sessions/<uuid:id>", SessionViewSet.as_view({"delete": "destroy"}), name="session"),
    path("password/change", PasswordViewSet.as_view({"post": "change"}), name="password-change"),
    path("password/reset", PasswordResetViewSet.as_view({"post": "reset"}), name="password-reset"),
    path("me", MeViewSet.as_view({"get": "retrieve"}), name="me"),
]
