"""Members that form an answer: a schema or grammar is the caller's own, and no server fetches or runs what it names."""

_FORMS = frozenset(
    {"$schema", "$id", "$ref", "const", "default", "enum", "examples", "structured_outputs"}
)


def is_form(name: str) -> bool:
    return name in _FORMS or name.startswith(("guided_", "stop")) or "regex" in name
