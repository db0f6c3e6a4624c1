"""The configured third parties: settings, read again when their file changes."""

import logging
from threading import Lock

from django.conf import settings
from environs import ValidationError

from accounts.connections.provider_settings import OAuthProvider, read
from config.platform.problems.problem import NotConfigured

log = logging.getLogger(__name__)


class ProviderNotConfigured(NotConfigured):
    default_detail = "This provider has not been set up."


class _Configured:
    """The providers of the newest valid settings."""

    def __init__(self) -> None:
        self._text = ""
        self._providers: dict[str, OAuthProvider] = {}
        self._lock = Lock()

    def __call__(self) -> dict[str, OAuthProvider]:
        text = settings.OAUTH_PROVIDERS()
        with self._lock:
            if text != self._text:
                self._text = text
                try:
                    self._providers = read(text)
                except ValidationError:
                    # The settings were valid at the start; an invalid change is logged and ignored.
                    log.exception("secret_file_not_usable", extra={"setting": "OAUTH_PROVIDERS"})
            return self._providers


configured = _Configured()


def find(name: str) -> OAuthProvider:
    """A provider by name; raises ``ProviderNotConfigured``."""
    try:
        return configured()[name]
    except KeyError:
        raise ProviderNotConfigured from None
