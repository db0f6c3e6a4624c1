from django.urls import path

from releases.views import PublishViewSet

app_name = "releases"

urlpatterns = [
    path("manifest/publish", PublishViewSet.as_view({"post": "publish"}), name="publish"),
]
