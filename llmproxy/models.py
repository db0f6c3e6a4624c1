"""The tables of language models, their providers, the routes between them, and personal keys."""

import re
from datetime import datetime
from decimal import Decimal
from uuid import UUID

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import F, Q

from config.platform.db.uuid7 import timed_uuid
from config.platform.encryption import Sealed
from licensing.models import Plan
from llmproxy.dialects import names
from llmproxy.requests.call_request import Surface

PROMPTS_HOLD = (
    "What a prompt may contain, as listed to callers. None selected: what is known, which is text, and images where "
    "they have a cost here."
)


class LanguageModel(models.Model):
    """A language model that callers may choose."""

    class Modality(models.TextChoices):
        """A kind of content in a prompt, named as in other lists of models."""

        TEXT = "text"
        IMAGE = "image"
        AUDIO = "audio"
        FILE = "file"

    name = models.CharField(max_length=120, unique=True, help_text="What callers ask for.")
    provider_name = models.CharField(max_length=120, help_text="What the provider calls it.")
    output_limit = models.PositiveIntegerField(
        default=4096,
        help_text="Output tokens of a call that names no limit, and the most one may ask for.",
    )
    image_tokens = models.PositiveIntegerField(
        null=True,
        blank=True,
        help_text="The most tokens that one image takes in a prompt. Empty: what is usual at the provider.",
    )
    context_length = models.PositiveIntegerField(
        null=True,
        blank=True,
        help_text=(
            "Tokens of prompt and answer together, as listed to callers. "
            "Empty: the published number that update_prices has found, if any."
        ),
    )
    input_modalities = ArrayField(
        models.CharField(max_length=5, choices=Modality),
        default=list,
        db_default=[],
        blank=True,
        help_text=PROMPTS_HOLD,
    )
    is_on = models.BooleanField("on", default=True)
    plans = models.ManyToManyField(
        Plan,
        blank=True,
        related_name="language_models",
        help_text="The plans that include it. None selected: every plan.",
    )
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ("name",)
        constraints = (
            models.CheckConstraint(
                condition=models.Q(output_limit__gte=16), name="model_output_limit_is_usable"
            ),
        )

    def __str__(self) -> str:
        return self.name


class Provider(Sealed, models.Model):
    """A provider of models. ``default`` is the one of the settings (``LLM_*``), whose row has none of their values."""

    DEFAULT = "default"
    # No member beside the known ones; all members, as before there were names: for one release.
    LISTED, ALL = "listed", "all"
    # The key is sealed to the address: changing the address does not send the key elsewhere.
    bound_to = ("name", "base_url")

    class Fetches(models.TextChoices):
        """A choice of passing on images and files by URL. A server in one's own network would fetch from there."""

        ADDRESS = "address", "by its address: a known vendor's own"
        YES = "yes", "yes: it fetches from the public internet alone"
        NO = "no", "no: data: URLs alone"
        # An upgrade gives it to other public addresses, and the front page names them.
        BEFORE = "before", "yes, as before the upgrade; undecided"

    class LimitName(models.TextChoices):
        """The name of the output limit in chat completions."""

        ADDRESS = "address", "by its address: max_completion_tokens at OpenAI's own and Azure's"
        MAX_TOKENS = "max_tokens", "max_tokens"
        MAX_COMPLETION_TOKENS = "max_completion_tokens", "max_completion_tokens"

    name = models.CharField(max_length=40, unique=True)
    dialect = models.CharField(
        max_length=10, choices=names.choices, default="openai", db_default="openai"
    )
    base_url = models.CharField(
        "address",
        max_length=500,
        blank=True,
        db_default="",
    )
    api_key = models.BinaryField(null=True, editable=False)
    members = models.CharField(
        "extra request fields",
        max_length=1000,
        default=LISTED,
        db_default="listed",
        blank=True,
        db_column="member_names",
        help_text=(
            "Names of members that pass beside the known ones, separated by commas, as top_k,chat_template_kwargs; or "
            "listed."
        ),
    )
    # Processes of the previous release read this; its column keeps its type, or prepared statements would fail once.
    members_before = models.CharField(
        max_length=6, default=LISTED, db_default="listed", db_column="members", editable=False
    )
    fetches = models.CharField(
        "fetches images and files by URL",
        max_length=7,
        choices=Fetches,
        default=Fetches.ADDRESS,
        db_default="address",
        help_text="Callers choose what is fetched, so a server that reaches your own network must not.",
    )
    limit_name = models.CharField(
        "name of the output limit",
        max_length=21,
        choices=LimitName,
        default=LimitName.ADDRESS,
        db_default="address",
        help_text="What its chat completions call the output limit. A server ignores a name that it does not know.",
    )
    calls_per_minute = models.PositiveIntegerField(
        null=True,
        blank=True,
        help_text="Calls beyond it go to the next route. Empty: any number.",
    )
    read_timeout = models.PositiveSmallIntegerField(
        null=True,
        blank=True,
        help_text="Seconds of silence after which a call has failed. Empty: LLM_READ_TIMEOUT.",
    )
    is_on = models.BooleanField("on", default=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ("name",)

    def __str__(self) -> str:
        return self.name


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


class PersonalKeyQuerySet(models.QuerySet["PersonalKey"]):
    def live(self, *, at: datetime) -> "PersonalKeyQuerySet":
        """Keys that have neither ended nor expired, and were made since their person's access was last ended."""
        return self.filter(ended_at=None, expires_at__gt=at, epoch=F("user__epoch"))


class PersonalKey(models.Model):
    """A person's static key for model calls, for editors and command lines that hold one."""

    id = models.UUIDField(primary_key=True, default=timed_uuid, editable=False)
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="personal_keys"
    )
    name = models.CharField(max_length=60)
    hash = models.BinaryField(unique=True, help_text="SHA-256 of the 32 random bytes of the key.")
    epoch = models.PositiveIntegerField(help_text="The person's epoch when the key was made.")
    monthly_output_tokens = models.PositiveBigIntegerField(
        null=True, help_text="Its own cap, beside its person's; empty: theirs alone."
    )
    created_at = models.DateTimeField()
    expires_at = models.DateTimeField()
    last_used_at = models.DateTimeField(null=True, help_text="To the minute.")
    mailed_at = models.DateTimeField(
        null=True, editable=False, help_text="When a mail tells of it; empty: with that of another."
    )
    ended_at = models.DateTimeField(null=True)

    user_id: UUID

    objects = PersonalKeyQuerySet.as_manager()

    class Meta:
        ordering = ("-created_at", "-id")
        constraints = (
            models.CheckConstraint(
                condition=Q(expires_at__gt=F("created_at")), name="key_expires_after_it_was_made"
            ),
        )

    def __str__(self) -> str:
        return self.name
