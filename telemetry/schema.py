"""What the published schema says of a batch. It is what shells should send; what is kept is decided event by event."""

from typing import Any

from telemetry.events import (
    APP,
    ID,
    NAME,
    NEWEST,
    OLDEST,
    PROPERTIES_BYTES,
    PROPERTIES_LEVELS,
    VERSION,
)
from telemetry.intake import MOST_BYTES, MOST_EVENTS

Schema = dict[str, Any]

EVENT: Schema = {
    "type": "object",
    "description": (
        "An event that is wrong is left out and named in `rejected`; the others are kept. "
        "Members that are not named here are ignored."
    ),
    "properties": {
        "id": {
            "type": "string",
            "format": "uuid",
            "pattern": f"^{ID}$",
            "description": "Made by the shell, once; unique within its client. A second copy is a duplicate.",
        },
        "name": {"type": "string", "pattern": f"^{NAME}$", "maxLength": 100},
        "occurred_at": {
            "type": "string",
            "format": "date-time",
            "description": (
                f"With an offset; from {OLDEST.days} days ago to {NEWEST.seconds // 3600} hour ahead."
            ),
        },
        "properties": {
            "type": ["object", "null"],
            "description": (
                f"At most {PROPERTIES_BYTES:,} bytes as compact JSON in UTF-8 and {PROPERTIES_LEVELS} levels, "
                "this object being the first. What looks like a token, a key, a password or an email address is "
                "replaced by a mark before it is kept."
            ),
        },
        "app": {
            "type": ["string", "null"],
            "pattern": f"^{APP}$",
            "maxLength": 60,
            "description": "The micro app it is about; none: the shell itself.",
        },
        "shell_version": {"type": ["string", "null"], "pattern": f"^{VERSION}$", "maxLength": 64},
    },
    "required": ["id", "name", "occurred_at"],
}

BATCH: Schema = {
    "type": "object",
    "description": f"At most {MOST_EVENTS} events and {MOST_BYTES:,} bytes.",
    "properties": {"events": {"type": "array", "maxItems": MOST_EVENTS, "items": EVENT}},
    "required": ["events"],
}
