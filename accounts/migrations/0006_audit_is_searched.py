from django.contrib.postgres.indexes import OpClass
from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models
from django.db.models.functions import Upper


class Migration(migrations.Migration):
    """Adds the indexes that searches of the audit log need."""

    # Building an index beside a service that writes takes no transaction.
    atomic = False

    dependencies = [("accounts", "0005_audit_is_not_emptied")]

    operations = [
        AddIndexConcurrently(
            model_name="auditevent",
            index=models.Index(
                fields=("action", "at"),
                opclasses=("varchar_pattern_ops", "timestamptz_ops"),
                name="audit_by_action",
            ),
        ),
        AddIndexConcurrently(
            model_name="auditevent",
            index=models.Index(
                OpClass(Upper("actor"), name="text_pattern_ops"), name="audit_by_actor_name"
            ),
        ),
        AddIndexConcurrently(
            model_name="auditevent",
            index=models.Index(
                OpClass(Upper("target"), name="text_pattern_ops"), name="audit_by_target_name"
            ),
        ),
        AddIndexConcurrently(
            model_name="auditevent",
            index=models.Index(
                fields=("request_id",),
                condition=~models.Q(request_id=""),
                name="audit_by_request",
            ),
        ),
        AddIndexConcurrently(
            model_name="auditevent",
            index=models.Index(fields=("address",), name="audit_by_address"),
        ),
        AddIndexConcurrently(
            model_name="auditevent",
            index=models.Index(fields=("actor_id",), name="audit_by_actor"),
        ),
    ]
