from typing import Any

from django.db import migrations, models


def forget_names(apps: Any, schema_editor: Any) -> None:
    """Leaves the words that the release before knows."""
    providers = apps.get_model("llmproxy", "Provider").objects
    providers.exclude(members__in=("listed", "all")).update(members="listed")


class Migration(migrations.Migration):
    """Names of members in place of one word for all; ``all`` of before goes on, and older processes read it so."""

    dependencies = [
        ("llmproxy", "0015_plain_labels"),
    ]

    operations = [
        migrations.AlterField(
            model_name="provider",
            name="members",
            field=models.CharField(
                blank=True,
                db_default="listed",
                default="listed",
                help_text="Names of members that pass beside the known ones, separated by commas, as top_k,chat_template_kwargs; or listed.",
                max_length=1000,
                verbose_name="extra request fields",
            ),
        ),
        migrations.RunPython(migrations.RunPython.noop, forget_names),
    ]
