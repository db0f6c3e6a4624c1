"""Publishes a version of a micro app from local files."""

from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone

from accounts.audit import Actor
from config.platform.problems.problem import Problem
from releases.micro_apps.publishing import publish_app


class Command(BaseCommand):
    help = "Verify and store a version of a micro app, and offer it on the channel latest."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("slug", help="as in entitlements")
        parser.add_argument("version", help="SemVer, as 1.2.3")
        parser.add_argument("bundle", type=Path, help="the .tar.gz")
        parser.add_argument("sig", type=Path, help="its minisign signature")

    def handle(
        self, *args: Any, slug: str, version: str, bundle: Path, sig: Path, **options: Any
    ) -> None:
        for path in (bundle, sig):
            if not path.is_file():
                raise CommandError(f"publish_app: no such file: {path}")
        try:
            done = publish_app(
                slug=slug,
                version=version,
                bundle=bundle,
                signature=sig,
                by=Actor.command("publish_app"),
                now=timezone.now(),
            )
        except Problem as problem:
            faults = "; ".join(
                f"{each.pointer} {each.code}: {each.detail}" for each in problem.errors
            )
            raise CommandError(f"publish_app: {faults or problem.detail}") from None
        said = "published" if done.created else "was there already"
        offers = f"latest offers {done.latest or 'nothing'}"
        self.stdout.write(
            f"publish_app: {done.version} {said}, sha256 {done.version.sha256}; {offers}"
        )
