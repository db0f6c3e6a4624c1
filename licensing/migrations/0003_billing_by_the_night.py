import django.contrib.postgres.fields
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("licensing", "0002_starter_plan")]

    operations = [
        migrations.CreateModel(
            name="Brake",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("job", models.CharField(max_length=60)),
                (
                    "licence_ids",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.BigIntegerField(), size=None
                    ),
                ),
                (
                    "clients",
                    models.PositiveIntegerField(help_text="How many there were in all."),
                ),
                ("noticed_at", models.DateTimeField()),
                ("confirmed_at", models.DateTimeField(blank=True, null=True)),
                ("confirmed_by", models.CharField(blank=True, max_length=254)),
                ("ended_at", models.DateTimeField(blank=True, null=True)),
            ],
            options={
                "ordering": ("-noticed_at", "-id"),
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("ended_at", None)),
                        fields=("job",),
                        name="brake_is_one_for_each_job",
                    )
                ],
            },
        ),
        migrations.AddField(
            model_name="licence",
            name="stripe_customer_id",
            field=models.CharField(
                blank=True,
                default="",
                db_default="",
                help_text="Who pays, as Stripe calls them. Empty: billing says nothing.",
                max_length=255,
            ),
        ),
    ]
