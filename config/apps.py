from django.apps import AppConfig


class ComposeConfig(AppConfig):
    """Composition: knows every app and is imported by none."""

    name = "config"
