import django.contrib.postgres.functions
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("licensing", "0001_squashed_0008_plans_may_have_personal_keys")]

    operations = [
        migrations.AddField(
            model_name="plan",
            name="catalogue_version",
            field=models.UUIDField(
                db_default=django.contrib.postgres.functions.RandomUUID(), editable=False
            ),
        ),
    ]
