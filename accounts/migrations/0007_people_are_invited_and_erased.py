from django.contrib.postgres.operations import AddConstraintNotValid
from django.db import migrations, models

NOBODY = models.Q(erased_at=None) | models.Q(
    is_active=False,
    is_staff=False,
    is_superuser=False,
    last_login=None,
    invited_at=None,
    email__endswith="@erased.invalid",
    password__startswith="!",  # nosec B106 # noqa: S106 - no password, but the mark of none
)


class Migration(migrations.Migration):
    dependencies = [("accounts", "0006_audit_is_searched")]

    operations = [
        migrations.AddField(
            model_name="user",
            name="invited_at",
            field=models.DateTimeField(
                blank=True,
                editable=False,
                help_text="when an invitation was last asked for",
                null=True,
            ),
        ),
        migrations.AddField(
            model_name="user",
            name="erased_at",
            field=models.DateTimeField(blank=True, editable=False, null=True),
        ),
        AddConstraintNotValid(
            model_name="user",
            constraint=models.CheckConstraint(condition=NOBODY, name="user_erased_is_nobody"),
        ),
    ]
