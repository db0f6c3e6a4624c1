import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

import config.platform.db.uuid7


class Migration(migrations.Migration):
    dependencies = [
        ("llmproxy", "0005_providers_of_operators"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="PersonalKey",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=config.platform.db.uuid7.timed_uuid,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("name", models.CharField(max_length=60)),
                (
                    "hash",
                    models.BinaryField(
                        help_text="SHA-256 of the 32 random bytes of the key.", unique=True
                    ),
                ),
                (
                    "epoch",
                    models.PositiveIntegerField(
                        help_text="The person's epoch when the key was made."
                    ),
                ),
                (
                    "monthly_output_tokens",
                    models.PositiveBigIntegerField(
                        help_text="Its own cap, beside its person's; empty: theirs alone.",
                        null=True,
                    ),
                ),
                ("created_at", models.DateTimeField()),
                ("expires_at", models.DateTimeField()),
                ("last_used_at", models.DateTimeField(help_text="To the minute.", null=True)),
                ("ended_at", models.DateTimeField(null=True)),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="personal_keys",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "ordering": ("-created_at", "-id"),
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("expires_at__gt", models.F("created_at"))),
                        name="key_expires_after_it_was_made",
                    )
                ],
            },
        ),
    ]
