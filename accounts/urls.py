from django.urls import path

from accounts.views import AccessViewSet, MeViewSet

app_name = "accounts"

urlpatterns = [
    path("login", AccessViewSet.as_view({"post": "login"}), name="login"),
    path("refresh", AccessViewSet.as_view({"post": "refresh"}), name="refresh"),
    path("logout", AccessViewSet.as_view({"post": "logout"}), name="logout"),
    path("me", MeViewSet.as_view({"get": "retrieve"}), name="me"),
]
