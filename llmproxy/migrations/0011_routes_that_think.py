from django.db import migrations, models


class Migration(migrations.Migration):
    """Adds a flag for models that think before they answer, which the nightly jobs learn."""

    dependencies = [
        ("llmproxy", "0010_the_catalogue_has_a_version"),
    ]

    operations = [
        migrations.AddField(
            model_name="route",
            name="thinks",
            field=models.BooleanField(
                db_default=False,
                default=False,
                editable=False,
                help_text="Whether most of its calls lately had reasoning tokens, as nights have learned.",
            ),
        ),
    ]
