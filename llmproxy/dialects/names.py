"""The names of the dialects in ``by_name``, for settings and models, which load before codecs and their libraries."""

# Each with its label in the console.
NAMES = {
    "openai": "OpenAI, and servers compatible with it",
    "anthropic": "Anthropic",
}


def choices() -> dict[str, str]:
    """The choices of a model's field; by a function, another dialect needs no migration."""
    return NAMES
