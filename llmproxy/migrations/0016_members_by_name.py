from django.db import migrations, models

TAKE_OVER = "UPDATE llmproxy_provider SET member_names = members WHERE members <> 'listed'"


class Migration(migrations.Migration):
    """Names of members in place of one word for all, in a column of their own: ``all`` of before goes on.

    The column of before keeps its type and its place for the processes of that release.
    """

    dependencies = [
        ("llmproxy", "0015_plain_labels"),
    ]

    operations = [
        migrations.SeparateDatabaseAndState(
            state_operations=[
                migrations.RenameField("provider", "members", "members_before"),
                migrations.AlterField(
                    model_name="provider",
                    name="members_before",
                    field=models.CharField(
                        db_column="members",
                        db_default="listed",
                        default="listed",
                        editable=False,
                        max_length=6,
                    ),
                ),
            ],
        ),
        migrations.AddField(
            model_name="provider",
            name="members",
            field=models.CharField(
                blank=True,
                db_column="member_names",
                db_default="listed",
                default="listed",
                help_text="Names of members that pass beside the known ones, separated by commas, as top_k,chat_template_kwargs; or listed.",
                max_length=1000,
                verbose_name="extra request fields",
            ),
        ),
        migrations.RunSQL(TAKE_OVER, migrations.RunSQL.noop),
    ]
