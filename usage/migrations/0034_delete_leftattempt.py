from django.db import migrations


class Migration(migrations.Migration):
    """Processes of now know the table no longer; those of release 1f2697d write it, and it goes with the next release."""

    dependencies = [("usage", "0033_left_attempts_are_moved")]

    operations = [
        migrations.SeparateDatabaseAndState(
            state_operations=[migrations.DeleteModel(name="LeftAttempt")]
        )
    ]
