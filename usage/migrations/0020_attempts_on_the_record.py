from django.db import migrations, models


class Migration(migrations.Migration):
    """A record holds the attempts that were abandoned and whether its report is implausible.

    Processes of the release before name neither column, and go on writing ``usage_leftattempt``.
    """

    dependencies = [
        ("usage", "0001_squashed_0019_cache_writes_validated"),
    ]

    operations = [
        migrations.AddField(
            model_name="usagerecord",
            name="abandoned",
            field=models.JSONField(
                editable=False,
                help_text="The attempts that ended without an answer although their providers may bill them: a list of provider, prices, tokens, cost, whether it was reported, and times. Their cost is the client's.",
                null=True,
            ),
        ),
        migrations.AddField(
            model_name="usagerecord",
            name="is_implausible",
            field=models.BooleanField(
                "implausible report",
                db_default=False,
                default=False,
                help_text="The provider reported far more than the prompt and the output limit explain.",
            ),
        ),
    ]
