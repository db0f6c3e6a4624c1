from django.db import migrations, models


class Migration(migrations.Migration):
    """The name by which a provider takes the output limit; servers ignore one that they do not know."""

    dependencies = [
        ("llmproxy", "0013_one_mail_an_hour_about_keys"),
    ]

    operations = [
        migrations.AddField(
            model_name="provider",
            name="limit_name",
            field=models.CharField(
                choices=[
                    (
                        "address",
                        "by its address: max_completion_tokens at OpenAI's own and Azure's",
                    ),
                    ("max_tokens", "max_tokens"),
                    ("max_completion_tokens", "max_completion_tokens"),
                ],
                db_default="address",
                default="address",
                help_text="What its chat completions call the output limit. A server ignores a name that it does not know.",
                max_length=21,
                verbose_name="name of the output limit",
            ),
        ),
    ]
