from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("accounts", "0037_clients_have_notes")]

    operations = [
        migrations.AlterField(
            model_name="session",
            name="ended_by",
            field=models.CharField(
                blank=True,
                choices=[
                    ("logout", "signed out"),
                    ("revoked", "revoked"),
                    ("password", "a new password was set"),
                    ("disabled", "the person was disabled"),
                    ("reuse", "a replaced token was presented again"),
                    ("devices", "another device took its place"),
                ],
                max_length=10,
            ),
        ),
    ]
