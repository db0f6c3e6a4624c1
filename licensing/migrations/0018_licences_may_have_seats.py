import django.core.validators
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("licensing", "0017_notices_to_shells")]

    operations = [
        migrations.AddField(
            model_name="licence",
            name="seats",
            field=models.PositiveIntegerField(
                blank=True,
                null=True,
                validators=(django.core.validators.MinValueValidator(1),),
                help_text="How many people may be enabled, invited ones too. Empty: any number.",
            ),
        ),
    ]
