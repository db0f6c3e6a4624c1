from datetime import UTC, datetime

from django.contrib.postgres.operations import AddConstraintNotValid
from django.db import migrations, models

FIRST, LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
IS_READABLE = models.Q(models.Q(("expires_at__gte", FIRST), ("expires_at__lte", LAST)))


class Migration(migrations.Migration):
    """One table: requests lock this and the next, and would wait for one while this waits for the other."""

    dependencies = [("accounts", "0015_a_box_goes_with_its_token")]

    operations = [
        AddConstraintNotValid(
            model_name="session",
            constraint=models.CheckConstraint(
                condition=IS_READABLE, name="session_expiry_is_readable"
            ),
        ),
    ]
