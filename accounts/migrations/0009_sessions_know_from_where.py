from django.contrib.postgres.operations import AddConstraintNotValid
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("accounts", "0008_erased_people_are_nobody")]

    operations = [
        migrations.AddField(
            model_name="session",
            name="started_from",
            field=models.GenericIPAddressField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name="session",
            name="last_used_from",
            field=models.GenericIPAddressField(blank=True, null=True),
        ),
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
                ],
                max_length=10,
            ),
        ),
        AddConstraintNotValid(
            model_name="refreshtoken",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("replaced_by", None), ("replaced_at__isnull", False), _connector="OR"
                ),
                name="token_replacement_has_a_moment",
            ),
        ),
        AddConstraintNotValid(
            model_name="refreshtoken",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("retry_box", None),
                    models.Q(("replaced_at__isnull", False), ("revoked_at", None)),
                    _connector="OR",
                ),
                name="token_box_ends_with_its_token",
            ),
        ),
    ]
