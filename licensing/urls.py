from django.urls import path

from licensing.views import LicenceViewSet

app_name = "licensing"

urlpatterns = [
    path("status", LicenceViewSet.as_view({"get": "status"}), name="status"),
]
