from django.urls import path

from releases.views import UpdateViewSet

app_name = "updates"

urlpatterns = [
    path("manifest", UpdateViewSet.as_view({"get": "manifest"}), name="manifest"),
]
