"""Fills a local database with a demo."""

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandParser
from django.utils import timezone

from config.composition.operation.demo import Demo, add_second_provider, seed


class Command(BaseCommand):
    help = "Create a demo client, person, operator and key, and print how to sign in."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--output", type=Path, required=True, help="file to write (mode 600)")
        parser.add_argument(
            "--second-provider",
            metavar="URL",
            default="",
            help="a provider of Anthropic's dialect, which takes over where the first fails",
        )

    def handle(self, *args: Any, output: Path, second_provider: str = "", **options: Any) -> None:
        now = timezone.now()
        demo = seed(known=_read(output), now=now)
        if second_provider:
            add_second_provider(second_provider, now=now)
        _write(output, demo)
        self.stdout.write(
            f"seed_demo: {demo.email} and {demo.operator_email} can sign in; see {output}"
        )


def _read(path: Path) -> Demo | None:
    try:
        return Demo(**json.loads(path.read_text()))
    except (FileNotFoundError, ValueError, TypeError):
        return None


def _write(path: Path, demo: Demo) -> None:
    """Writes the file atomically, readable only by its owner."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".new")
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        json.dump(asdict(demo), file, indent=2)
    draft.replace(path)
