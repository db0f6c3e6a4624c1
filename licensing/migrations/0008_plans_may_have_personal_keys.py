from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("licensing", "0007_plans_and_licences_validated")]

    operations = [
        migrations.AddField(
            model_name="plan",
            name="allows_keys",
            field=models.BooleanField(
                "personal keys",
                db_default=False,
                default=False,
                help_text="Whether people may make keys for editors and command lines.",
            ),
        ),
    ]
