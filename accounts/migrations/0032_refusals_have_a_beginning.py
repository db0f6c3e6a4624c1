from django.db import migrations, models


class Migration(migrations.Migration):
    """A column that processes of the release before leave empty."""

    dependencies = [
        ("accounts", "0031_pruning_needs_no_superuser"),
    ]

    operations = [
        migrations.AddField(
            model_name="connection",
            name="refused_since",
            field=models.DateTimeField(
                editable=False, help_text="of refusals in unknown words alone", null=True
            ),
        ),
        migrations.AlterField(
            model_name="connection",
            name="lapse",
            field=models.CharField(
                blank=True,
                choices=[
                    ("refused", "the provider accepts the grant no longer"),
                    ("answer_lost", "refused after an answer of the provider was lost"),
                    ("expired", "it ran out, and the provider gave nothing to renew it with"),
                    ("unexplained", "refused for hours in words that nobody knows here"),
                ],
                max_length=20,
            ),
        ),
    ]
