from django.apps import AppConfig
from django.conf import settings

from releases.platforms import refuse_unknown


class ReleasesConfig(AppConfig):
    name = "releases"

    def ready(self) -> None:
        refuse_unknown(settings.PUBLISH_PLATFORMS)
