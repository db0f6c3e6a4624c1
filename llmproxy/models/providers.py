"""The table of providers."""

from django.db import models

from config.platform.encryption import Sealed
from llmproxy.dialects import names


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
