from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("llmproxy", "0003_providers_and_routes")]

    operations = [
        migrations.AddField(
            model_name="route",
            name="learns_since",
            field=models.DateTimeField(editable=False, null=True),
        ),
    ]
