"""Adds the items told to the operators' channel, kept until they are over."""

from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="ToldItem",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("name", models.CharField(max_length=254, unique=True)),
                ("text", models.TextField()),
                ("level", models.SmallIntegerField()),
                ("told_at", models.DateTimeField(null=True)),
                ("over_at", models.DateTimeField(null=True)),
            ],
            options={"ordering": ("name",)},
        ),
    ]
