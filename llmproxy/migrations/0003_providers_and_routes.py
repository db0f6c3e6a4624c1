import re
from decimal import Decimal
from typing import Any

import django.db.models.deletion
from django.db import migrations, models

# The vocabularies of OpenAI's families; every other model is counted by a factor.
TOKENIZERS = (
    (re.compile(r"gpt-4o|gpt-4\.|gpt-5|gpt-oss|chatgpt-4o|o[1-9](-|$)"), "o200k_base"),
    (re.compile(r"gpt-4|gpt-3\.5|text-embedding-"), "cl100k_base"),
)


def add_routes(apps: Any, _: Any) -> None:
    """One route for each model that exists, to the provider of the settings."""
    provider = apps.get_model("llmproxy", "Provider").objects.create(name="default")
    route = apps.get_model("llmproxy", "Route")
    for model in apps.get_model("llmproxy", "LanguageModel").objects.all():
        name = model.provider_name
        known = (tokenizer for pattern, tokenizer in TOKENIZERS if pattern.match(name))
        tokenizer = next(known, "factor")
        route.objects.create(
            model=model, provider=provider, provider_name=name, tokenizer=tokenizer
        )


class Migration(migrations.Migration):
    dependencies = [
        ("llmproxy", "0002_what_an_image_costs"),
    ]

    operations = [
        migrations.CreateModel(
            name="Provider",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("name", models.CharField(max_length=40, unique=True)),
                ("is_on", models.BooleanField(default=True, verbose_name="on")),
                ("created_at", models.DateTimeField(auto_now_add=True)),
            ],
            options={
                "ordering": ("name",),
            },
        ),
        migrations.CreateModel(
            name="Route",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "provider_name",
                    models.CharField(
                        help_text="What the provider calls the model.", max_length=120
                    ),
                ),
                (
                    "order",
                    models.PositiveSmallIntegerField(
                        default=0, help_text="The lowest is tried first."
                    ),
                ),
                (
                    "tokenizer",
                    models.CharField(
                        choices=[
                            ("o200k_base", "o200k_base (exact for newer models of OpenAI)"),
                            ("cl100k_base", "cl100k_base (exact for older models of OpenAI)"),
                            ("factor", "o200k_base times a factor"),
                        ],
                        default="factor",
                        max_length=12,
                    ),
                ),
                (
                    "token_factor",
                    models.DecimalField(
                        decimal_places=3,
                        default=Decimal("1.35"),
                        help_text="What a count is multiplied by; learned each night from what the provider reports.",
                        max_digits=4,
                    ),
                ),
                (
                    "factor_is_set",
                    models.BooleanField(
                        default=False,
                        help_text="Nights leave it as it is.",
                        verbose_name="factor set by an operator",
                    ),
                ),
                ("input_price", models.PositiveBigIntegerField(blank=True, null=True)),
                ("cached_input_price", models.PositiveBigIntegerField(blank=True, null=True)),
                ("output_price", models.PositiveBigIntegerField(blank=True, null=True)),
                (
                    "prices_are_set",
                    models.BooleanField(
                        default=False,
                        help_text="update_prices leaves them as they are.",
                        verbose_name="prices set by an operator",
                    ),
                ),
                (
                    "model",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="routes",
                        to="llmproxy.languagemodel",
                    ),
                ),
                (
                    "provider",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="routes",
                        to="llmproxy.provider",
                    ),
                ),
            ],
            options={
                "ordering": ("model", "order", "id"),
                "constraints": [
                    models.UniqueConstraint(
                        fields=("model", "provider"), name="one_route_per_model_and_provider"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("token_factor__gte", 1), ("token_factor__lte", 2)),
                        name="route_factor_is_between_1_and_2",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(
                                ("cached_input_price", None),
                                ("input_price", None),
                                ("output_price", None),
                            ),
                            models.Q(
                                ("input_price__isnull", False),
                                ("output_price__isnull", False),
                                models.Q(
                                    ("cached_input_price", None),
                                    ("cached_input_price__lte", models.F("input_price")),
                                    _connector="OR",
                                ),
                            ),
                            _connector="OR",
                        ),
                        name="route_prices_are_whole",
                    ),
                ],
            },
        ),
        migrations.RunPython(add_routes, migrations.RunPython.noop),
    ]
