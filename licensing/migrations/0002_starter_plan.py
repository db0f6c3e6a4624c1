"""The one tier of the first release."""

from django.db import migrations


def seed(apps, schema_editor):
    apps.get_model("licensing", "Plan").objects.get_or_create(
        name="Starter",
        defaults={
            "monthly_input_tokens": 500_000,
            "monthly_output_tokens": 100_000,
            "daily_tokens": 100_000,
        },
    )


class Migration(migrations.Migration):
    dependencies = [("licensing", "0001_initial")]

    # Going back removes nothing: licences may refer to the plan by then.
    operations = [migrations.RunPython(seed, migrations.RunPython.noop)]
