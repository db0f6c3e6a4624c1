from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("llmproxy", "0001_initial"),
    ]

    operations = [
        migrations.AddField(
            model_name="languagemodel",
            name="image_tokens",
            field=models.PositiveIntegerField(
                blank=True,
                help_text="The most that one image costs in a prompt; empty means what is usual at the provider.",
                null=True,
            ),
        ),
    ]
