from django.urls import path

from usage.views import UsageViewSet

app_name = "usage"

urlpatterns = [
    path("me", UsageViewSet.as_view({"get": "me"}), name="me"),
]
