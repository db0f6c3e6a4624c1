"""The table of language models."""

from django.db import models

from licensing.models import Plan


class LanguageModel(models.Model):
    """A language model that callers may choose."""

    name = models.CharField(max_length=120, unique=True, help_text="What callers ask for.")
    provider_name = models.CharField(max_length=120, help_text="What the provider calls it.")
    output_limit = models.PositiveIntegerField(
        default=4096,
        help_text="Output tokens of a call that names no limit, and the most one may ask for.",
    )
    image_tokens = models.PositiveIntegerField(
        null=True,
        blank=True,
        help_text="The most that one image costs in a prompt; empty means what is usual at the provider.",
    )
    is_on = models.BooleanField("on", default=True)
    plans = models.ManyToManyField(
        Plan,
        blank=True,
        related_name="language_models",
        help_text="Who may use it; none chosen means every plan.",
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
