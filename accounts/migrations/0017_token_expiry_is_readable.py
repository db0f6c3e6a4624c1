from datetime import UTC, datetime

from django.contrib.postgres.operations import AddConstraintNotValid
from django.db import migrations, models

FIRST, LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
IS_READABLE = models.Q(models.Q(("expires_at__gte", FIRST), ("expires_at__lte", LAST)))


class Migration(migrations.Migration):
    """By itself, as the one before."""

    dependencies = [("accounts", "0016_session_expiry_is_readable")]

    operations = [
        AddConstraintNotValid(
            model_name="refreshtoken",
            constraint=models.CheckConstraint(
                condition=IS_READABLE, name="token_expiry_is_readable"
            ),
        ),
    ]
