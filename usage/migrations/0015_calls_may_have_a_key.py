from django.db import migrations, models
from django.db.models.functions import Least
from django.db.models.lookups import GreaterThanOrEqual


class Migration(migrations.Migration):
    dependencies = [
        ("usage", "0014_labels"),
    ]

    operations = [
        migrations.CreateModel(
            name="KeyMonth",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("key_id", models.UUIDField()),
                ("period", models.DateField()),
                ("output_used", models.BigIntegerField(default=0)),
                ("output_reserved", models.BigIntegerField(default=0)),
                (
                    "output_cap",
                    models.BigIntegerField(help_text="The cap of the latest admission."),
                ),
            ],
            options={
                "ordering": ("-period", "key_id"),
                "constraints": [
                    models.UniqueConstraint(
                        fields=("key_id", "period"), name="one_row_per_key_and_month"
                    ),
                    models.CheckConstraint(
                        condition=GreaterThanOrEqual(
                            Least("output_used", "output_reserved", "output_cap"), 0
                        ),
                        name="key_totals_not_below_zero",
                    ),
                ],
            },
        ),
        migrations.AddField(
            model_name="usagerecord",
            name="key_id",
            field=models.UUIDField(
                help_text="The personal key of the call, if it had one.", null=True
            ),
        ),
    ]
