"""The table of routes between models and providers, and what the name of a model tells of it."""

import re
from decimal import Decimal

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import F, Q

from llmproxy.models.language_models import LanguageModel
from llmproxy.models.providers import Provider
from llmproxy.requests.call_request import Surface

# The vocabularies of OpenAI's families, by the beginning of a provider's name for a model.
_O200K = re.compile(r"gpt-4o|gpt-4\.|gpt-5|gpt-oss|chatgpt-4o|o[1-9](-|$)")
_CL100K = re.compile(r"gpt-4|gpt-3\.5|text-embedding-")
# Families that think before they answer unless a request says otherwise.
_THINKERS = re.compile(
    r"o[1-9](-|$)|gpt-5(?!.*chat)|gpt-oss|deepseek-r|qwq|magistral|(?!.*non-).*(think|reason)"
)


class Route(models.Model):
    """A way to a model: a provider with its name, its count and its prices for the model.

    Prices are in millionths of a dollar per million tokens, so $2.50 is 2,500,000; empty means unknown.
    """

    class Tokenizer(models.TextChoices):
        """The way a prompt is counted, named for OpenAI's vocabularies."""

        O200K = "o200k_base", "o200k_base (exact for newer models of OpenAI)"
        CL100K = "cl100k_base", "cl100k_base (exact for older models of OpenAI)"
        FACTOR = "factor", "o200k_base × a factor"

    FIRST_FACTOR = Decimal("1.35")

    model = models.ForeignKey(LanguageModel, on_delete=models.CASCADE, related_name="routes")
    provider = models.ForeignKey(Provider, on_delete=models.PROTECT, related_name="routes")
    provider_name = models.CharField(max_length=120, help_text="What the provider calls the model.")
    order = models.PositiveSmallIntegerField(default=0, help_text="The lowest is tried first.")
    surfaces = ArrayField(
        models.CharField(max_length=10, choices=[(each.value, each.value) for each in Surface]),
        default=list,
        db_default=[],
        blank=True,
        help_text="The endpoints that this route serves. None selected: all that the dialect has.",
    )
    tokenizer = models.CharField(
        "token estimate", max_length=12, choices=Tokenizer, default=Tokenizer.FACTOR
    )
    token_factor = models.DecimalField(
        max_digits=4,
        decimal_places=3,
        default=FIRST_FACTOR,
        help_text="What a count is multiplied by; learned each night from what the provider reports.",
    )
    factor_is_set = models.BooleanField(
        "factor set by an operator", default=False, help_text="Nightly jobs leave it as it is."
    )
    # Reports on calls before then are of another model of the provider, or of another count.
    learns_since = models.DateTimeField(null=True, editable=False)
    input_price = models.PositiveBigIntegerField(null=True, blank=True)
    cached_input_price = models.PositiveBigIntegerField(null=True, blank=True)
    output_price = models.PositiveBigIntegerField(null=True, blank=True)
    # In no constraint: processes of before take the other prices away and leave it.
    cache_write_price = models.PositiveBigIntegerField(null=True, blank=True)
    prices_are_set = models.BooleanField(
        "prices set by an operator",
        default=False,
        help_text="update_prices leaves them as they are.",
    )
    context_length = models.PositiveIntegerField(
        null=True, editable=False, help_text="The published one, which update_prices writes."
    )
    thinks = models.BooleanField(
        default=False,
        db_default=False,
        editable=False,
        help_text="Whether most of its calls lately had reasoning tokens, as nights have learned.",
    )

    class Meta:
        ordering = ("model", "order", "id")
        constraints = (
            models.UniqueConstraint(
                fields=("model", "provider"), name="one_route_per_model_and_provider"
            ),
            models.CheckConstraint(
                condition=Q(token_factor__gte=1, token_factor__lte=2),
                name="route_factor_is_between_1_and_2",
            ),
            models.CheckConstraint(
                condition=Q(input_price=None, cached_input_price=None, output_price=None)
                | (
                    Q(input_price__isnull=False, output_price__isnull=False)
                    & (Q(cached_input_price=None) | Q(cached_input_price__lte=F("input_price")))
                ),
                name="route_prices_are_whole",
            ),
        )

    def __str__(self) -> str:
        return f"{self.model} at {self.provider}"


def tokenizer_of(provider_name: str) -> Route.Tokenizer:
    """The tokenizer of a model, by the provider's name for it; a path or ``ft:`` before it does not matter."""
    family = _family(provider_name)
    if _O200K.match(family):
        return Route.Tokenizer.O200K
    return Route.Tokenizer.CL100K if _CL100K.match(family) else Route.Tokenizer.FACTOR


def is_known_to_think(provider_name: str) -> bool:
    """Returns whether a model thinks before it answers, by the provider's name for it."""
    return _THINKERS.match(_family(provider_name)) is not None


def _family(provider_name: str) -> str:
    return provider_name.rpartition("/")[2].lower().removeprefix("ft:")
