"""The place in the audit log up to which a syslog server has taken it."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("accounts", "0024_operators_are_few")]

    operations = [
        migrations.CreateModel(
            name="AuditPosition",
            fields=[
                ("id", models.SmallIntegerField(default=1, primary_key=True, serialize=False)),
                ("event_id", models.BigIntegerField(help_text="the last event that was taken")),
                ("at", models.DateTimeField(help_text="when it was taken")),
            ],
            options={
                "ordering": ("id",),
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("id", 1)), name="audit_position_is_one"
                    )
                ],
            },
        ),
    ]
