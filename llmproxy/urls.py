from django.urls import path

from llmproxy.views import ModelCallViewSet, ModelViewSet

app_name = "llmproxy"

urlpatterns = [
    path("complete", ModelCallViewSet.as_view({"post": "complete"}), name="complete"),
    path("stream", ModelCallViewSet.as_view({"post": "stream"}), name="stream"),
    path("chat/completions", ModelCallViewSet.as_view({"post": "chat"}), name="chat-completions"),
    path("models", ModelViewSet.as_view({"get": "list"}), name="models"),
]
