"""A chain of refresh tokens is deleted as a whole; only Django's collector changes, no column."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("accounts", "0018_expiries_validated")]

    operations = [
        migrations.AlterField(
            model_name="refreshtoken",
            name="replaced_by",
            field=models.OneToOneField(
                blank=True,
                null=True,
                on_delete=django.db.models.deletion.DO_NOTHING,
                related_name="replaces",
                to="accounts.refreshtoken",
            ),
        )
    ]
