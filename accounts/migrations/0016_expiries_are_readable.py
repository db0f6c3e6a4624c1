from datetime import UTC, datetime

from django.contrib.postgres.operations import AddConstraintNotValid
from django.db import migrations, models

FIRST, LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
IS_READABLE = models.Q(models.Q(("expires_at__gte", FIRST), ("expires_at__lte", LAST)))


class Migration(migrations.Migration):
    # Each table by itself: requests lock both, and would wait for one while this waits for the other.
    atomic = False

    dependencies = [("accounts", "0015_a_box_goes_with_its_token")]

    operations = [
        AddConstraintNotValid(
            model_name="session",
            constraint=models.CheckConstraint(
                condition=IS_READABLE, name="session_expiry_is_readable"
            ),
        ),
        AddConstraintNotValid(
            model_name="refreshtoken",
            constraint=models.CheckConstraint(
                condition=IS_READABLE, name="token_expiry_is_readable"
            ),
        ),
    ]
