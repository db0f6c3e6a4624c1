from django.db import migrations, models


class Migration(migrations.Migration):
    """Adds the time of the mail about a key: at most one an hour."""

    dependencies = [
        ("llmproxy", "0012_providers_that_fetch"),
    ]

    operations = [
        migrations.AddField(
            model_name="personalkey",
            name="mailed_at",
            field=models.DateTimeField(
                editable=False,
                help_text="When a mail tells of it; empty: with that of another.",
                null=True,
            ),
        ),
    ]
