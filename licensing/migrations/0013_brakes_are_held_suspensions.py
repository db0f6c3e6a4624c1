from django.db import migrations


class Migration(migrations.Migration):
    """The console calls a held run what it holds."""

    dependencies = [
        ("licensing", "0012_one_plan_is_for_new_clients"),
    ]

    operations = [
        migrations.AlterModelOptions(
            name="brake",
            options={"ordering": ("-noticed_at", "-id"), "verbose_name": "held suspension"},
        ),
    ]
