from django.db import migrations


class Migration(migrations.Migration):
    """The console calls everybody a person."""

    dependencies = [
        ("accounts", "0029_audit_is_searched_by_words"),
    ]

    operations = [
        migrations.AlterModelOptions(
            name="user",
            options={
                "ordering": ("email",),
                "verbose_name": "person",
                "verbose_name_plural": "people",
            },
        ),
    ]
