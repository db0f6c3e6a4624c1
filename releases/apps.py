from django.apps import AppConfig
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from releases.manifests.platforms import refuse_unknown


class ReleasesConfig(AppConfig):
    name = "releases"

    def ready(self) -> None:
        refuse_unknown(settings.PUBLISH_PLATFORMS)
        if settings.APPS_PUBLIC_KEY and settings.APPS_PUBLIC_KEY == settings.UPDATE_PUBLIC_KEY:
            # Signers of apps must not be able to sign a shell.
            raise ImproperlyConfigured("APPS_PUBLIC_KEY must differ from UPDATE_PUBLIC_KEY.")
