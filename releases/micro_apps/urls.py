from django.urls import path

from releases.micro_apps.views import AppViewSet

app_name = "apps"

urlpatterns = [
    path("apps/<str:slug>/manifest", AppViewSet.as_view({"get": "manifest"}), name="manifest"),
]
