from django.db import migrations, models


class Migration(migrations.Migration):
    """A session keeps what the shell said of itself, from which operators read the device."""

    dependencies = [("accounts", "0027_tokens_are_issued_when_they_are_made")]

    operations = [
        migrations.AddField(
            model_name="session",
            name="agent",
            field=models.CharField(
                blank=True,
                db_default="",
                default="",
                help_text="what the shell said of itself when it signed in",
                max_length=200,
                verbose_name="program",
            ),
        ),
    ]
