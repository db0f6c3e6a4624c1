import django.core.validators
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("licensing", "0009_plans_know_a_version_of_the_catalogue")]

    operations = [
        migrations.AddField(
            model_name="plan",
            name="cached_input_percent",
            field=models.SmallIntegerField(
                "percent of cached input",
                db_default=100,
                default=100,
                validators=(
                    django.core.validators.MinValueValidator(0),
                    django.core.validators.MaxValueValidator(100),
                ),
                help_text="Percent of input read from a provider's cache that counts towards day and month; 10 suits coding tools, which send the same again in each call. What calls cost does not change.",
            ),
        ),
        migrations.AddConstraint(
            model_name="plan",
            constraint=models.CheckConstraint(
                condition=models.Q(cached_input_percent__range=(0, 100)),
                name="plan_cached_input_is_a_percent",
            ),
        ),
    ]
