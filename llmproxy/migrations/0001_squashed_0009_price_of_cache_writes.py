"""Models, providers, routes and personal keys, as release 1f2697d had them."""

from decimal import Decimal

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.db import migrations, models
from django.db.models import F, Q

from config.platform.db.uuid7 import timed_uuid

LANGUAGE_MODEL = {
    "id": models.BigAutoField(
        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
    ),
    "name": models.CharField(help_text="What callers ask for.", max_length=120, unique=True),
    "provider_name": models.CharField(help_text="What the provider calls it.", max_length=120),
    "output_limit": models.PositiveIntegerField(
        default=4096,
        help_text="Output tokens of a call that names no limit, and the most one may ask for.",
    ),
    "is_on": models.BooleanField(default=True, verbose_name="on"),
    "created_at": models.DateTimeField(auto_now_add=True),
    "plans": models.ManyToManyField(
        blank=True,
        help_text="Who may use it; none chosen means every plan.",
        related_name="language_models",
        to="licensing.plan",
    ),
    "image_tokens": models.PositiveIntegerField(
        blank=True,
        help_text="The most that one image costs in a prompt; empty means what is usual at the provider.",
        null=True,
    ),
    "context_length": models.PositiveIntegerField(
        blank=True,
        help_text="Tokens of prompt and answer together, as the list of models tells callers; empty means the published number that update_prices has found, if any.",
        null=True,
    ),
    "input_modalities": ArrayField(
        base_field=models.CharField(
            choices=[("text", "Text"), ("image", "Image"), ("audio", "Audio"), ("file", "File")],
            max_length=5,
        ),
        blank=True,
        db_default=[],
        default=list,
        help_text="What a prompt may hold, as the list of models tells callers; none chosen means what is known: text, and images where they have a cost here.",
        size=None,
    ),
}
LANGUAGE_MODEL_OPTIONS = {
    "ordering": ("name",),
    "constraints": [
        models.CheckConstraint(
            condition=Q(("output_limit__gte", 16)), name="model_output_limit_is_usable"
        ),
    ],
}
PROVIDER = {
    "id": models.BigAutoField(
        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
    ),
    "name": models.CharField(max_length=40, unique=True),
    "is_on": models.BooleanField(default=True, verbose_name="on"),
    "created_at": models.DateTimeField(auto_now_add=True),
    "api_key": models.BinaryField(null=True),
    "base_url": models.CharField(
        blank=True,
        db_default="",
        help_text="As the provider's own SDK takes it: OpenAI's with its /v1, Anthropic's without.",
        max_length=500,
        verbose_name="address",
    ),
    "calls_per_minute": models.PositiveIntegerField(
        blank=True,
        help_text="Beyond it calls go to the next route; empty means any number.",
        null=True,
    ),
    "dialect": models.CharField(
        choices=[("openai", "OpenAI, and servers compatible with it"), ("anthropic", "Anthropic")],
        db_default="openai",
        default="openai",
        max_length=10,
    ),
    "members": models.CharField(
        choices=[("listed", "those of the dialect"), ("all", "all")],
        db_default="listed",
        default="listed",
        max_length=6,
    ),
    "read_timeout": models.PositiveSmallIntegerField(
        blank=True,
        help_text="Seconds of silence after which a call has failed; empty means LLM_READ_TIMEOUT.",
        null=True,
    ),
}
ROUTE = {
    "id": models.BigAutoField(
        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
    ),
    "provider_name": models.CharField(
        help_text="What the provider calls the model.", max_length=120
    ),
    "order": models.PositiveSmallIntegerField(default=0, help_text="The lowest is tried first."),
    "tokenizer": models.CharField(
        choices=[
            ("o200k_base", "o200k_base (exact for newer models of OpenAI)"),
            ("cl100k_base", "cl100k_base (exact for older models of OpenAI)"),
            ("factor", "o200k_base times a factor"),
        ],
        default="factor",
        max_length=12,
    ),
    "token_factor": models.DecimalField(
        decimal_places=3,
        default=Decimal("1.35"),
        help_text="What a count is multiplied by; learned each night from what the provider reports.",
        max_digits=4,
    ),
    "factor_is_set": models.BooleanField(
        default=False,
        help_text="Nights leave it as it is.",
        verbose_name="factor set by an operator",
    ),
    "input_price": models.PositiveBigIntegerField(blank=True, null=True),
    "cached_input_price": models.PositiveBigIntegerField(blank=True, null=True),
    "output_price": models.PositiveBigIntegerField(blank=True, null=True),
    "prices_are_set": models.BooleanField(
        default=False,
        help_text="update_prices leaves them as they are.",
        verbose_name="prices set by an operator",
    ),
    "model": models.ForeignKey(
        on_delete=models.CASCADE, related_name="routes", to="llmproxy.languagemodel"
    ),
    "provider": models.ForeignKey(
        on_delete=models.PROTECT, related_name="routes", to="llmproxy.provider"
    ),
    "learns_since": models.DateTimeField(editable=False, null=True),
    "surfaces": ArrayField(
        base_field=models.CharField(
            choices=[
                ("chat", "chat"),
                ("responses", "responses"),
                ("embeddings", "embeddings"),
                ("messages", "messages"),
            ],
            max_length=10,
        ),
        blank=True,
        db_default=[],
        default=list,
        help_text="Where the model answers by this route; none chosen means wherever the dialect does.",
        size=None,
    ),
    "context_length": models.PositiveIntegerField(
        editable=False, help_text="The published one, which update_prices writes.", null=True
    ),
    "cache_write_price": models.PositiveBigIntegerField(blank=True, null=True),
}
ROUTE_OPTIONS = {
    "ordering": ("model", "order", "id"),
    "constraints": [
        models.UniqueConstraint(
            fields=("model", "provider"), name="one_route_per_model_and_provider"
        ),
        models.CheckConstraint(
            condition=Q(("token_factor__gte", 1), ("token_factor__lte", 2)),
            name="route_factor_is_between_1_and_2",
        ),
        models.CheckConstraint(
            condition=Q(
                Q(("cached_input_price", None), ("input_price", None), ("output_price", None)),
                Q(
                    ("input_price__isnull", False),
                    ("output_price__isnull", False),
                    Q(
                        ("cached_input_price", None),
                        ("cached_input_price__lte", F("input_price")),
                        _connector="OR",
                    ),
                ),
                _connector="OR",
            ),
            name="route_prices_are_whole",
        ),
    ],
}
PERSONAL_KEY = {
    "id": models.UUIDField(default=timed_uuid, editable=False, primary_key=True, serialize=False),
    "name": models.CharField(max_length=60),
    "hash": models.BinaryField(help_text="SHA-256 of the 32 random bytes of the key.", unique=True),
    "epoch": models.PositiveIntegerField(help_text="The person's epoch when the key was made."),
    "monthly_output_tokens": models.PositiveBigIntegerField(
        help_text="Its own cap, beside its person's; empty: theirs alone.", null=True
    ),
    "created_at": models.DateTimeField(),
    "expires_at": models.DateTimeField(),
    "last_used_at": models.DateTimeField(help_text="To the minute.", null=True),
    "ended_at": models.DateTimeField(null=True),
    "user": models.ForeignKey(
        on_delete=models.CASCADE, related_name="personal_keys", to=settings.AUTH_USER_MODEL
    ),
}
PERSONAL_KEY_OPTIONS = {
    "ordering": ("-created_at", "-id"),
    "constraints": [
        models.CheckConstraint(
            condition=Q(("expires_at__gt", F("created_at"))), name="key_expires_after_it_was_made"
        ),
    ],
}


def seed(apps, schema_editor):
    """The provider of the settings."""
    apps.get_model("llmproxy", "Provider").objects.create(name="default")


class Migration(migrations.Migration):
    replaces = [
        ("llmproxy", "0001_initial"),
        ("llmproxy", "0002_what_an_image_costs"),
        ("llmproxy", "0003_providers_and_routes"),
        ("llmproxy", "0004_routes_learn_since_a_change"),
        ("llmproxy", "0005_providers_of_operators"),
        ("llmproxy", "0006_personal_keys"),
        ("llmproxy", "0007_models_in_the_list"),
        ("llmproxy", "0008_published_context_lengths"),
        ("llmproxy", "0009_price_of_cache_writes"),
    ]
    initial = True
    dependencies = [
        ("licensing", "0001_squashed_0008_plans_may_have_personal_keys"),
        ("accounts", "0001_squashed_0026_second_factors"),
    ]

    operations = [
        migrations.CreateModel(
            "LanguageModel", list(LANGUAGE_MODEL.items()), LANGUAGE_MODEL_OPTIONS
        ),
        migrations.CreateModel("Provider", list(PROVIDER.items()), {"ordering": ("name",)}),
        migrations.CreateModel("Route", list(ROUTE.items()), ROUTE_OPTIONS),
        migrations.CreateModel("PersonalKey", list(PERSONAL_KEY.items()), PERSONAL_KEY_OPTIONS),
        migrations.RunPython(seed, migrations.RunPython.noop),
    ]
