from django.contrib.postgres.operations import AddConstraintNotValid
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("accounts", "0011_connections")]

    operations = [
        migrations.AlterField(
            model_name="passwordlink",
            name="kind",
            field=models.CharField(
                choices=[
                    ("reset", "reset"),
                    ("invitation", "invitation"),
                    ("one_time", "one-time password"),
                ],
                max_length=10,
            ),
        ),
        AddConstraintNotValid(
            model_name="passwordlink",
            constraint=models.CheckConstraint(
                condition=models.Q(kind__in=("reset", "invitation", "one_time")),
                name="password_link_is_one_of_three",
            ),
        ),
        migrations.RemoveConstraint(model_name="passwordlink", name="password_link_is_of_a_kind"),
    ]
