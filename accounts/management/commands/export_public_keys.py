"""Exports the public keys as files, for shells that verify tokens offline."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone

from accounts.keys.signing_keys import public_files

EARLIER = re.compile(r"[\w-]{43}\.pem", re.ASCII)


class Command(BaseCommand):
    help = (
        "Write the keys that verify access tokens now or soon: a PEM for each, jwks.json with all, "
        "and keys.json with the times between which each is valid."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--output", type=Path, required=True, metavar="DIR")

    def handle(self, *args: Any, output: Path, **options: Any) -> None:
        files = public_files(now=timezone.now())
        try:
            _write(files, output)
        except OSError as error:
            raise CommandError(f"{output} cannot be written to: {error.strerror}.") from None
        keys = sum(name.endswith(".pem") for name in files)
        self.stdout.write(f"export_public_keys: {keys} keys written to {output}")


def _write(files: Mapping[str, bytes], output: Path) -> None:
    output.mkdir(parents=True, exist_ok=True)
    # A build that includes every PEM of the folder must not include a retired key.
    for path in output.iterdir():
        if EARLIER.fullmatch(path.name) and path.name not in files:
            path.unlink()
    for name, content in files.items():
        (output / name).write_bytes(content)
