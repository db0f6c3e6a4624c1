import django.core.validators
from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):
    dependencies = [("licensing", "0018_licences_may_have_seats")]

    operations = [
        migrations.AddField(
            model_name="licence",
            name="devices",
            field=models.PositiveIntegerField(
                "devices per person",
                blank=True,
                null=True,
                validators=(django.core.validators.MinValueValidator(1),),
                help_text="How many devices each person may be signed in on. Empty: any number.",
            ),
        ),
        migrations.AddField(
            model_name="licence",
            name="devices_full",
            field=models.CharField(
                "when all are in use",
                choices=[
                    ("refuse", "Refuse the sign-in"),
                    ("oldest", "Sign out the least recently used device"),
                ],
                db_default="refuse",
                default="refuse",
                max_length=10,
            ),
        ),
        migrations.AddConstraint(
            "licence",
            models.CheckConstraint(
                condition=(Q(devices=None) | Q(devices__gte=1))
                & Q(devices_full__in=["refuse", "oldest"]),
                name="licence_devices_are_a_limit",
            ),
        ),
    ]
