from django.apps import AppConfig


class ModelProxyConfig(AppConfig):
    name = "llmproxy"
    verbose_name = "model proxy"
