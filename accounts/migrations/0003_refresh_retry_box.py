from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    # The index is built beside a table in use.
    atomic = False

    dependencies = [("accounts", "0002_audit_is_append_only")]

    operations = [
        migrations.AddField(
            model_name="refreshtoken",
            name="retry_box",
            field=models.BinaryField(editable=False, null=True),
        ),
        AddIndexConcurrently(
            model_name="refreshtoken",
            index=models.Index(
                condition=models.Q(("retry_box__isnull", False)),
                fields=["replaced_at"],
                name="token_retry_box_by_age",
            ),
        ),
    ]
