"""Prompts, look-ups and refusals that the management commands share."""

from argparse import ArgumentTypeError
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date
from getpass import getpass

from django.core.management.base import CommandError

from accounts.models import User
from config.platform.problems.problem import Problem
from config.platform.text.forms import password_form


def ask(question: Callable[[str], str], prompt: str, *, instead: str) -> str:
    """Asks by ``input`` or ``getpass``; without a terminal the error suggests what to do ``instead``."""
    try:
        return question(prompt)
    except EOFError:
        raise CommandError(f"There is no terminal to ask at. {instead}") from None


def ask_password(*, instead: str) -> str:
    """Asks for a password twice, without showing it."""
    password = ask(getpass, "Password: ", instead=instead)
    if password_form(password) != password_form(
        ask(getpass, "Password (again): ", instead=instead)
    ):
        raise CommandError("The two passwords do not match.")
    return password


def user_of(email: str) -> User:
    """The user with an email; without one the command fails."""
    user = User.objects.by_email(email).first()
    if user is None:
        raise CommandError("There is no user with this email.")
    return user


def month_argument(text: str) -> date:
    """The first day of a month that is written as 2026-11, for arguments."""
    try:
        return date.fromisoformat(f"{text}-01")
    except ValueError:
        raise ArgumentTypeError("must be a month, as 2026-11") from None


@contextmanager
def refusals_as_errors() -> Iterator[None]:
    """Shows the faults of a refusal, or its detail, as the error of the command."""
    try:
        yield
    except Problem as refusal:
        faults = "\n".join(fault.detail for fault in refusal.errors)
        raise CommandError(faults or refusal.detail) from None
