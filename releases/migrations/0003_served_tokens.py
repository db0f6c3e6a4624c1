from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("releases", "0002_micro_apps")]

    operations = [
        migrations.CreateModel(
            name="ServedToken",
            fields=[
                (
                    "id_sha256",
                    models.CharField(
                        help_text="SHA-256 of issuer and `jti`, in lower hex.",
                        max_length=64,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                (
                    "body_sha256",
                    models.CharField(help_text="SHA-256 of the document.", max_length=64),
                ),
                (
                    "forget_at",
                    models.DateTimeField(
                        db_index=True, help_text="When nobody takes the token any more."
                    ),
                ),
            ],
            options={
                "ordering": ("forget_at",),
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            ("id_sha256__regex", "^[0-9a-f]{64}$"),
                            ("body_sha256__regex", "^[0-9a-f]{64}$"),
                        ),
                        name="served_token_sums_are_lower_hex",
                    )
                ],
            },
        ),
    ]
