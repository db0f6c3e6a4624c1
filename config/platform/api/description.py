"""The description of the API in the published schema, and drf-spectacular's settings but for those that name apps."""

from typing import Any


def description_settings(*, version: str, base_url: str) -> dict[str, Any]:
    """drf-spectacular's settings, to which ``config.settings`` adds the names of the apps' modules."""
    return {
        "TITLE": "Shell backend",
        "DESCRIPTION": "Sign-in, licences, a metered model proxy, usage and signed updates for the desktop shell.",
        "VERSION": version,
        "OAS_VERSION": "3.1.0",
        "TAGS": [
            {
                "name": "access",
                "description": "Sign-in, sessions, passwords and the keys of tokens.",
            },
            {"name": "licence", "description": "What the shell may do now."},
            {"name": "models", "description": "Metered calls to models."},
            {"name": "personal keys", "description": "Static keys for editors and command lines."},
            {"name": "usage", "description": "Tokens used, and what is left."},
            {"name": "releases", "description": "Updates of the shell, and micro apps."},
            {"name": "telemetry", "description": "Events that shells report."},
            {"name": "connections", "description": "Access to third parties, by OAuth."},
            {"name": "operations", "description": "Health checks."},
        ],
        "SERVE_INCLUDE_SCHEMA": False,
        "SERVERS": [{"url": base_url}],
        "COMPONENT_SPLIT_REQUEST": True,
        "SWAGGER_UI_DIST": "SIDECAR",
        "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
        "REDOC_DIST": "SIDECAR",
    }
