import django.contrib.postgres.fields
import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

LAPSES = [
    ("refused", "the provider accepts the grant no longer"),
    ("answer_lost", "refused after an answer of the provider was lost"),
    ("expired", "it ran out, and the provider gave nothing to renew it with"),
]
FAILURES = [
    ("unreachable", "could not be reached"),
    ("timed_out", "took too long"),
    ("overloaded", "asked to wait"),
    ("failed", "failed, or answered something that is no answer"),
    ("client_refused", "does not know our client, or its secret"),
]


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0010_a_chain_has_one_last_token"),
    ]

    operations = [
        migrations.CreateModel(
            name="Connection",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("provider", models.CharField(max_length=40)),
                (
                    "scopes",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.CharField(max_length=500),
                        blank=True,
                        default=list,
                        size=None,
                    ),
                ),
                ("access_token", models.BinaryField(editable=False)),
                ("refresh_token", models.BinaryField(editable=False, null=True)),
                ("connected_at", models.DateTimeField(help_text="when the person last agreed")),
                (
                    "refreshed_at",
                    models.DateTimeField(help_text="when the provider last gave tokens"),
                ),
                ("expires_at", models.DateTimeField(help_text="of the access token", null=True)),
                ("lapsed_at", models.DateTimeField(null=True)),
                ("lapse", models.CharField(blank=True, choices=LAPSES, max_length=20)),
                ("failed_at", models.DateTimeField(null=True)),
                ("failure", models.CharField(blank=True, choices=FAILURES, max_length=20)),
                (
                    "ask_again_at",
                    models.DateTimeField(
                        help_text="the provider is left alone until then", null=True
                    ),
                ),
                ("generation", models.BigIntegerField(default=1, editable=False)),
                ("fence", models.BigIntegerField(default=0, editable=False)),
                ("leased_until", models.DateTimeField(editable=False, null=True)),
                ("answer_lost", models.BooleanField(default=False, editable=False)),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="connections",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "ordering": ("provider", "id"),
                "constraints": [
                    models.UniqueConstraint(
                        fields=("user", "provider"), name="one_connection_per_user_and_provider"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("provider__regex", "^[a-z0-9][a-z0-9_-]*$")),
                        name="connection_provider_is_a_plain_word",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("lapse", ""), ("lapsed_at", None)),
                            models.Q(
                                ("lapsed_at__isnull", False),
                                models.Q(("lapse", ""), _negated=True),
                            ),
                            _connector="OR",
                        ),
                        name="connection_lapse_has_a_reason",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("failed_at", None), ("failure", "")),
                            models.Q(
                                ("failed_at__isnull", False),
                                models.Q(("failure", ""), _negated=True),
                            ),
                            _connector="OR",
                        ),
                        name="connection_failure_has_a_kind",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="ConnectionAttempt",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("state_hash", models.CharField(editable=False, max_length=64, unique=True)),
                ("provider", models.CharField(max_length=40)),
                ("redirect_uri", models.CharField(max_length=200)),
                ("verifier", models.BinaryField(editable=False)),
                ("began_at", models.DateTimeField()),
                ("expires_at", models.DateTimeField()),
                (
                    "session",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="connection_attempts",
                        to="accounts.session",
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="connection_attempts",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "ordering": ("-id",),
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("expires_at__gt", models.F("began_at"))),
                        name="connection_attempt_expires_later",
                    ),
                ],
                "indexes": [
                    models.Index(fields=["expires_at"], name="connection_attempt_by_end"),
                ],
            },
        ),
        migrations.CreateModel(
            name="ConnectionRevocation",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("provider", models.CharField(max_length=40)),
                ("user_id", models.UUIDField(verbose_name="user")),
                ("tokens", models.BinaryField(editable=False)),
                ("asked_at", models.DateTimeField()),
                ("due_at", models.DateTimeField(help_text="when it is tried next")),
                ("attempts", models.PositiveIntegerField(default=0)),
                ("tried_at", models.DateTimeField(null=True)),
                (
                    "failure",
                    models.CharField(blank=True, help_text="of the last attempt", max_length=20),
                ),
                ("gave_up_at", models.DateTimeField(null=True)),
            ],
            options={
                "ordering": ("-id",),
                "indexes": [
                    models.Index(fields=["user_id", "provider"], name="revocation_by_user"),
                    models.Index(
                        condition=models.Q(("gave_up_at", None)),
                        fields=["due_at"],
                        name="revocation_by_next_attempt",
                    ),
                ],
            },
        ),
    ]
