"""OpenAPI schema of publishing: its authentication and the manifest."""

from typing import Any

from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.plumbing import build_bearer_security_scheme_object

from releases.manifests.platforms import KNOWN

_TEXT: dict[str, Any] = {"type": "string"}
_PLATFORM: dict[str, Any] = {
    "type": "object",
    "properties": {
        "url": {**_TEXT, "format": "uri", "description": "Below the CDN's `/shell/`."},
        "signature": {
            **_TEXT,
            "minLength": 1,
            "description": "Base64 of the artifact's minisign file, as Tauri's signer writes it.",
        },
    },
    "required": ["url", "signature"],
}
MANIFEST: dict[str, Any] = {
    "type": "object",
    "description": "The update manifest as shells read it; kept and served byte for byte.",
    "properties": {
        "channel": {**_TEXT, "description": "The same as `ch`; the signature covers it."},
        "version": {**_TEXT, "description": "Strict SemVer 2.0, without a leading v."},
        "pub_date": {**_TEXT, "format": "date-time"},
        "notes": {"type": ["string", "null"]},
        "platforms": {
            "type": "object",
            "minProperties": 1,
            "propertyNames": {"enum": sorted(KNOWN)},
            "additionalProperties": _PLATFORM,
        },
    },
    "required": ["channel", "version", "pub_date", "platforms"],
}


class PublishSecret(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]  # its base has no types
    target_class = "releases.pipeline.authentication.PublisherAuthentication"
    name = "publishSecret"

    def get_security_definition(self, auto_schema: AutoSchema) -> dict[str, Any]:
        scheme: dict[str, Any] = build_bearer_security_scheme_object(
            header_name="HTTP_AUTHORIZATION",
            token_prefix="Bearer",  # nosec B106 # noqa: S106 - a scheme
        )
        return {**scheme, "description": "A publish secret, or the identity token of a pipeline."}
