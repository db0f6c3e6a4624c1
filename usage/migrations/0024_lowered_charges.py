from django.db import migrations, models


class Migration(migrations.Migration):
    """A record keeps what it was charged before an operator lowered it, and an alert names its call.

    Processes of the release before name neither column.
    """

    dependencies = [
        ("usage", "0023_cached_input_validated"),
    ]

    operations = [
        migrations.AddField(
            model_name="usagerecord",
            name="as_settled",
            field=models.JSONField(
                editable=False,
                help_text="Tokens and cost as they were settled, where an operator has lowered them since.",
                null=True,
            ),
        ),
        migrations.AddField(
            model_name="alert",
            name="record_id",
            field=models.UUIDField(help_text="The call, where it is about one.", null=True),
        ),
    ]
