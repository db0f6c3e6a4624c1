"""The choices of a provider's dialect, which a migration names."""

from llmproxy.dialects.by_name import DIALECTS


def choices() -> dict[str, str]:
    """The choices of a model's field; by a function, another dialect needs no migration."""
    return {each.name: each.label for each in DIALECTS.values()}
