import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0003_refresh_retry_box"),
    ]

    operations = [
        migrations.CreateModel(
            name="PasswordLink",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                (
                    "kind",
                    models.CharField(
                        choices=[("reset", "reset"), ("invitation", "invitation")], max_length=10
                    ),
                ),
                ("secret_hash", models.CharField(editable=False, max_length=64, unique=True)),
                (
                    "epoch",
                    models.PositiveIntegerField(help_text="the person's epoch when it was made"),
                ),
                ("made_at", models.DateTimeField()),
                ("expires_at", models.DateTimeField()),
                ("used_at", models.DateTimeField(blank=True, null=True)),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="password_links",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "ordering": ("-id",),
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("expires_at__gt", models.F("made_at"))),
                        name="password_link_expires_later",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("kind__in", ("reset", "invitation"))),
                        name="password_link_is_of_a_kind",
                    ),
                ],
            },
        ),
    ]
