import django.contrib.postgres.fields
import django.contrib.postgres.indexes
import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    """Adds refusals, kept for two weeks. Processes of the release before record none."""

    dependencies = [
        ("usage", "0024_lowered_charges"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="Refusal",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("minute", models.DateTimeField()),
                (
                    "client_id",
                    models.UUIDField(help_text="The client of the person at the time.", null=True),
                ),
                (
                    "address",
                    models.GenericIPAddressField(
                        help_text="Of a request without a person; of IPv6 the network.", null=True
                    ),
                ),
                ("code", models.CharField(max_length=40)),
                ("status", models.PositiveSmallIntegerField()),
                (
                    "route",
                    models.CharField(blank=True, help_text="Of the latest request.", max_length=80),
                ),
                ("model", models.CharField(blank=True, max_length=120)),
                ("number", models.PositiveIntegerField(default=1)),
                ("last_at", models.DateTimeField()),
                (
                    "request_ids",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.CharField(max_length=64), default=list, size=None
                    ),
                ),
                (
                    "numbers",
                    models.JSONField(
                        default=dict,
                        help_text="Of the latest request: what was asked for and what was left.",
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="refusals",
                        to=settings.AUTH_USER_MODEL,
                        verbose_name="person",
                    ),
                ),
            ],
            options={
                "ordering": ("-minute", "-id"),
                "indexes": [
                    models.Index(fields=["-minute", "-id"], name="refusals_newest_first"),
                    models.Index(fields=["client_id", "-minute"], name="refusals_by_client"),
                    models.Index(fields=["code", "-minute"], name="refusals_by_code"),
                    django.contrib.postgres.indexes.GinIndex(
                        fields=["request_ids"], name="refusals_by_request"
                    ),
                ],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("user", "minute", "code", "model", "address"),
                        name="one_refusal_of_a_kind_a_minute",
                        nulls_distinct=False,
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("user", None), ("address", None), _connector="OR"),
                        name="refusal_is_of_a_person_or_network",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("number__gt", 0), ("request_ids__len__lte", 20)),
                        name="refusal_keeps_few_request_ids",
                    ),
                ],
            },
        ),
    ]
