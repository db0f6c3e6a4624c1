from django.urls import path

from llmproxy.views import ModelCallViewSet

app_name = "llmproxy"

urlpatterns = [
    path("complete", ModelCallViewSet.as_view({"post": "complete"}), name="complete"),
    path("stream", ModelCallViewSet.as_view({"post": "stream"}), name="stream"),
    path("chat/completions", ModelCallViewSet.as_view({"post": "chat"}), name="chat-completions"),
    path("models", ModelCallViewSet.as_view({"get": "models"}), name="models"),
]
