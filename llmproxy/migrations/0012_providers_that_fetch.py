import re
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.db import migrations, models

from config.platform.env.hosts import is_private

KNOWN = re.compile(
    r"(.+\.)?(api\.openai\.com|(openai|cognitiveservices|services\.ai)\.azure\.com|api\.anthropic\.com)\.?"
)
CHOICES = [
    ("address", "by its address: OpenAI's, Azure's and Anthropic's own"),
    ("yes", "yes: it fetches from the public internet alone"),
    ("no", "no: data: URLs alone"),
    ("before", "yes, as before the upgrade; undecided"),
]


def leave_on(apps: Any, _: Any) -> None:
    """Providers at a public address have fetched until now; a new installation, which has no people, begins without."""
    if not apps.get_model("accounts", "User").objects.exists():
        return
    for provider in apps.get_model("llmproxy", "Provider").objects.all():
        address = settings.LLM_BASE_URL if provider.name == "default" else provider.base_url
        is_known = KNOWN.fullmatch(urlsplit(address).hostname or "")
        if not is_private(address) and not is_known:
            provider.fetches = "before"
            provider.save(update_fields=["fetches"])


class Migration(migrations.Migration):
    """Adds a flag for providers that receive images and files by URL."""

    dependencies = [
        ("llmproxy", "0011_routes_that_think"),
        ("accounts", "0001_squashed_0026_second_factors"),
    ]

    operations = [
        migrations.AddField(
            model_name="provider",
            name="fetches",
            field=models.CharField(
                choices=CHOICES,
                db_default="address",
                default="address",
                help_text="Callers choose what is fetched, so a server that reaches your own network must not.",
                max_length=7,
                verbose_name="fetches images and files by URL",
            ),
        ),
        migrations.RunPython(leave_on, migrations.RunPython.noop),
    ]
