from django.contrib.postgres.operations import AddConstraintNotValid
from django.db import migrations, models


class Migration(migrations.Migration):
    """Records say when their provider began to answer and, while they run, what they have cost so far."""

    dependencies = [("usage", "0001_initial")]

    operations = [
        migrations.AddField(
            model_name="usagerecord",
            name="checkpoint_input",
            field=models.PositiveBigIntegerField(
                null=True,
                help_text="While it runs: what it has cost so far, as its process last said.",
            ),
        ),
        migrations.AddField(
            model_name="usagerecord",
            name="checkpoint_output",
            field=models.PositiveBigIntegerField(null=True),
        ),
        migrations.AddField(
            model_name="usagerecord",
            name="first_byte_at",
            field=models.DateTimeField(
                null=True,
                help_text="When the provider began to answer; empty if it never did.",
            ),
        ),
        migrations.AddField(
            model_name="usagerecord",
            name="checkpoint_at",
            field=models.DateTimeField(
                null=True,
                help_text="When its process last said that it runs, by the database's clock.",
            ),
        ),
        migrations.AlterField(
            model_name="usagerecord",
            name="opened_at",
            field=models.DateTimeField(help_text="When it was admitted."),
        ),
        # Checked for new rows from here on; the next migration looks at the others without stopping anyone.
        AddConstraintNotValid(
            model_name="usagerecord",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("checkpoint_input", None), ("checkpoint_output", None)),
                    models.Q(
                        ("checkpoint_at__isnull", False),
                        ("checkpoint_input__isnull", False),
                        ("checkpoint_output__isnull", False),
                    ),
                    _connector="OR",
                ),
                name="usage_checkpoint_is_whole",
            ),
        ),
    ]
