from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("llmproxy", "0008_published_context_lengths")]

    operations = [
        migrations.AddField(
            model_name="route",
            name="cache_write_price",
            field=models.PositiveBigIntegerField(blank=True, null=True),
        ),
    ]
