from django.urls import path

from llmproxy.keys.views import KeyViewSet

app_name = "keys"

urlpatterns = [
    path("keys", KeyViewSet.as_view({"get": "list", "post": "create"}), name="all"),
    path("keys/<uuid:id>", KeyViewSet.as_view({"delete": "destroy"}), name="one"),
]
