from django.db import migrations


class Migration(migrations.Migration):
    """Changes names in the console; the database stays as it is."""

    dependencies = [
        ("usage", "0026_daily_usage"),
    ]

    operations = [
        migrations.AlterModelOptions(
            name="runningcall",
            options={"ordering": ("opened_at", "id"), "verbose_name": "running call"},
        ),
        migrations.AlterModelOptions(
            name="usagerecord",
            options={"ordering": ("-opened_at", "id"), "verbose_name": "call"},
        ),
    ]
