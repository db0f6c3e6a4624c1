from django.db import migrations, models


class Migration(migrations.Migration):
    """A call may end because its answer could not be read, and operators hear of several."""

    dependencies = [
        ("usage", "0029_a_caller_disconnects"),
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
                    ("answer_unread", "answer could not be read"),
                    ("timeout", "timed out"),
                    ("stopped", "stopped by an operator or a revocation"),
                    ("crashed", "the worker died"),
                ],
                max_length=15,
            ),
        ),
        migrations.AlterField(
            model_name="alert",
            name="kind",
            field=models.CharField(
                choices=[
                    ("input", "80 % of the month's input tokens"),
                    ("output", "80 % of the month's output tokens"),
                    ("input_all", "all of the month's input tokens"),
                    ("output_all", "all of the month's output tokens"),
                    ("day", "the daily limit"),
                    ("percentile", "95th percentile of shares at 80 %"),
                    ("abandoned", "many abandoned calls"),
                    ("report", "an implausible report by the provider"),
                    ("unread", "answers that could not be read"),
                ],
                max_length=10,
            ),
        ),
    ]
