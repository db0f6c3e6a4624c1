from django.db import migrations, models


class Migration(migrations.Migration):
    """Operators note the contract, the account manager and more of a client."""

    dependencies = [("accounts", "0036_operators_from_before_roles_get_one")]

    operations = [
        migrations.AddField(
            model_name="client",
            name="contract",
            field=models.CharField(
                blank=True,
                db_default="",
                default="",
                help_text="As in CRM-2041, 3 years.",
                max_length=200,
            ),
        ),
        migrations.AddField(
            model_name="client",
            name="manager",
            field=models.CharField(
                blank=True,
                db_default="",
                default="",
                help_text="A colleague, by name or email.",
                max_length=200,
                verbose_name="account manager",
            ),
        ),
        migrations.AddField(
            model_name="client",
            name="notes",
            field=models.CharField(
                blank=True,
                db_default="",
                default="",
                help_text="Plain text for colleagues. Nothing about single people: erasing a person does not search it.",
                max_length=4000,
            ),
        ),
    ]
