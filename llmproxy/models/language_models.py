"""The table of language models."""

from django.contrib.postgres.fields import ArrayField
from django.db import models

from licensing.models import Plan

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
