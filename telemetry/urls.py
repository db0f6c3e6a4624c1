from django.urls import path

from telemetry.views import TelemetryViewSet

app_name = "telemetry"

urlpatterns = [
    path("telemetry", TelemetryViewSet.as_view({"post": "take_in"}), name="batch"),
]
