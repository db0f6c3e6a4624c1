from django.db import migrations, models


class Migration(migrations.Migration):
    """A record has the attempts that failed, the problem that ended it, and when its first output came.

    Processes of the release before name none of these columns, and leave them empty.
    """

    dependencies = [("usage", "0034_delete_leftattempt")]

    operations = [
        migrations.AddField(
            model_name="usagerecord",
            name="failures",
            field=models.JSONField(
                editable=False,
                help_text="The attempts that failed, with what their providers said, and what the caller was told.",
                null=True,
            ),
        ),
        migrations.AddField(
            model_name="usagerecord",
            name="error_code",
            field=models.CharField(
                editable=False,
                help_text="The code of the problem that ended it; empty where it had an answer or nobody was told.",
                max_length=64,
                null=True,
            ),
        ),
        migrations.AddField(
            model_name="usagerecord",
            name="first_output_at",
            field=models.DateTimeField(
                editable=False,
                help_text="When the first output of a stream came; empty for an answer in one piece.",
                null=True,
            ),
        ),
    ]
