from django.db import migrations, models


class Migration(migrations.Migration):
    """A call whose caller has gone says so in the field's word."""

    dependencies = [
        ("usage", "0028_usage_totals"),
    ]

    operations = [
        migrations.AlterField(
            model_name="usagerecord",
            name="end",
            field=models.CharField(
                blank=True,
                choices=[
                    ("done", "done"),
                    ("client_gone", "caller disconnected"),
                    ("provider_failed", "provider failed"),
                    ("timeout", "timed out"),
                    ("stopped", "stopped by an operator or a revocation"),
                    ("crashed", "the worker died"),
                ],
                max_length=15,
            ),
        ),
    ]
