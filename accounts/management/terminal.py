"""What a command asks whoever is at its terminal."""

from collections.abc import Callable

from django.core.management.base import CommandError


def asked(question: Callable[[str], str], prompt: str, *, instead: str) -> str:
    """The answer to a question, asked by ``input`` or ``getpass``; ``instead`` is told where nobody can answer."""
    try:
        return question(prompt)
    except EOFError:
        raise CommandError(f"Nobody is here to be asked. {instead}") from None
