"""Names the plan of new clients: that of the first release where it is still there, else none."""

from django.db import migrations, models


def choose(apps, schema_editor):
    apps.get_model("licensing", "Plan").objects.filter(name="Starter").update(is_default=True)


class Migration(migrations.Migration):
    dependencies = [("licensing", "0010_a_plan_says_how_cached_input_counts")]

    operations = [
        migrations.AddField(
            model_name="plan",
            name="is_default",
            field=models.BooleanField(
                "for new clients",
                db_default=False,
                default=False,
                help_text="Whether a new client gets this plan unless another is chosen. Takes the place of the plan before.",
            ),
        ),
        migrations.RunPython(choose, migrations.RunPython.noop),
    ]
