"""Shows how the prices and context lengths of routes differ from the published ones, and writes those."""

import sys
from datetime import datetime
from typing import Any

from django.core.management.base import BaseCommand, CommandParser
from django.utils import timezone

from accounts.audit import Actor
from accounts.management.terminal import ask
from llmproxy.catalogue.offering import ModelTerms, add_model
from llmproxy.catalogue.prices import price_text, prices_of
from llmproxy.catalogue.published_prices import (
    Comparison,
    compare,
    priced_default_model,
    update_prices,
)
from llmproxy.catalogue.unpriced import unpriced_warning
from llmproxy.models import LanguageModel


class Command(BaseCommand):
    help = (
        "Compare the prices and context lengths of models with the published ones that the installed genai-prices "
        "package holds, and write those with --write or when you agree. Prices set by an operator stay."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--write", action="store_true", help="write without a question")

    def handle(self, *args: Any, write: bool, **options: Any) -> None:
        now = timezone.now()
        if new := priced_default_model(now=now):
            self._add(new, write=write, now=now)
        compared = compare(now=now)
        for each in compared:
            self.stdout.write(f"{each.route}: {_line(each)}{_context(each)}")
        for model in LanguageModel.objects.filter(routes=None):
            self.stdout.write(
                f"{model}: no route, so its calls have no prices; change the model to make one"
            )
        different = sum(each.is_to_write for each in compared)
        if different:
            self._offer(compared, different, write=write, now=now)
        else:
            self.stdout.write("update_prices: no difference")
        if warning := unpriced_warning():
            self.stdout.write(warning)

    def _add(self, new: LanguageModel, *, write: bool, now: datetime) -> None:
        """Gives the default model of a new installation its row, which can have prices."""
        if not write:
            self.stdout.write(f"{new}: no row yet, so its calls have no prices; --write adds one")
            return
        terms = ModelTerms(
            name=new.name,
            provider_name=new.provider_name,
            output_limit=new.output_limit,
            is_on=True,
            plans=[],
        )
        add_model(terms=terms, by=Actor.command("update_prices"), now=now)
        self.stdout.write(f"{new}: added, for every plan")

    def _offer(
        self, compared: list[Comparison], different: int, *, write: bool, now: datetime
    ) -> None:
        """Writes the differences if told to, or if the person at the terminal agrees."""
        if not write and sys.stdin.isatty():
            answer = ask(input, "Write these prices? [y/N] ", instead="Use --write.")
            write = answer.strip().lower() in {"y", "yes"}
        if write:
            written = update_prices(compared, by=Actor.command("update_prices"), now=now)
            self.stdout.write(f"update_prices: {written} written, for calls from now on")
        else:
            self.stdout.write(f"update_prices: {different} differ, nothing written (--write)")


def _line(each: Comparison) -> str:
    old = price_text(prices_of(each.route))
    if each.published is None:
        return f"unknown to the list by the name {each.route.provider_name}; prices: {old}"
    new = f"{price_text(each.published.prices)} ({each.published.name})"
    if each.published.is_tiered:
        new += "; long prompts cost more, which is left out"
    if each.route.prices_are_set:
        return f"set by an operator and left: {old}; published: {new}"
    return f"{old} -> {new}" if each.is_different else f"unchanged: {new}"


def _context(each: Comparison) -> str:
    """The context length, where another is published."""
    if each.published is None or not each.is_longer_or_shorter:
        return ""
    old, new = (
        "none" if length is None else f"{length:,}"
        for length in (each.route.context_length, each.published.context_length)
    )
    return f"; context {old} -> {new}"
