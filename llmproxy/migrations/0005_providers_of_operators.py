import django.contrib.postgres.fields
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("llmproxy", "0004_routes_learn_since_a_change"),
    ]

    operations = [
        migrations.AddField(
            model_name="provider",
            name="api_key",
            field=models.BinaryField(null=True),
        ),
        migrations.AddField(
            model_name="provider",
            name="base_url",
            field=models.CharField(
                blank=True,
                db_default="",
                help_text="As the provider's own SDK takes it: OpenAI's with its /v1, Anthropic's without.",
                max_length=500,
                verbose_name="address",
            ),
        ),
        migrations.AddField(
            model_name="provider",
            name="calls_per_minute",
            field=models.PositiveIntegerField(
                blank=True,
                help_text="Beyond it calls go to the next route; empty means any number.",
                null=True,
            ),
        ),
        migrations.AddField(
            model_name="provider",
            name="dialect",
            field=models.CharField(
                choices=[
                    ("openai", "OpenAI, and servers compatible with it"),
                    ("anthropic", "Anthropic"),
                ],
                db_default="openai",
                default="openai",
                max_length=10,
            ),
        ),
        migrations.AddField(
            model_name="provider",
            name="members",
            field=models.CharField(
                choices=[("listed", "those of the dialect"), ("all", "all")],
                db_default="listed",
                default="listed",
                max_length=6,
            ),
        ),
        migrations.AddField(
            model_name="provider",
            name="read_timeout",
            field=models.PositiveSmallIntegerField(
                blank=True,
                help_text="Seconds of silence after which a call has failed; empty means LLM_READ_TIMEOUT.",
                null=True,
            ),
        ),
        migrations.AddField(
            model_name="route",
            name="surfaces",
            field=django.contrib.postgres.fields.ArrayField(
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
        ),
    ]
