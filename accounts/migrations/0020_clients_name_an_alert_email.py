"""A client may name an address that is mailed about its people; old processes leave it empty."""

from django.db import migrations

import accounts.models.people


class Migration(migrations.Migration):
    dependencies = [("accounts", "0019_a_chain_is_deleted_as_a_whole")]

    operations = [
        migrations.AddField(
            model_name="client",
            name="alert_email",
            field=accounts.models.people.EmailAddressField(
                blank=True,
                db_default="",
                default="",
                help_text="Mailed, as operators are, when one of its people has used up a monthly cap.",
                max_length=254,
            ),
        )
    ]
