from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    """A person's abandoned calls of a month are counted from an index alone. Built beside a table in use."""

    atomic = False

    dependencies = [
        ("usage", "0011_a_clients_month"),
    ]

    operations = [
        AddIndexConcurrently(
            model_name="usagerecord",
            index=models.Index(
                fields=["user", "period", "day", "model"],
                condition=models.Q(("end", "client_gone")),
                name="usage_left_by_month",
            ),
        ),
    ]
