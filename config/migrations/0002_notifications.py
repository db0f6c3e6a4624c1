"""Renames items that are told to notifications, and gives mails of alerts rows of their own.

The table of the webhook keeps its names, because processes of the release before write to it meanwhile.
"""

from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.state import StateApps

OLD, NEW = ("tolditem", "told item"), ("notification", "notification")


def _rename(apps: StateApps, before: tuple[str, str], after: tuple[str, str]) -> None:
    types = apps.get_model("contenttypes", "ContentType").objects.filter(app_label="config")
    kind = types.filter(model=before[0]).first()
    if kind is None or types.filter(model=after[0]).exists():
        # A new database has none yet.
        return
    kind.model = after[0]
    kind.save(update_fields=["model"])
    for permission in apps.get_model("auth", "Permission").objects.filter(content_type=kind):
        permission.codename = permission.codename.replace(before[0], after[0])
        permission.name = permission.name.replace(before[1], after[1])
        permission.save(update_fields=["codename", "name"])


def rename(apps: StateApps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    _rename(apps, OLD, NEW)


def rename_back(apps: StateApps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    _rename(apps, NEW, OLD)


class Migration(migrations.Migration):
    dependencies = [
        ("config", "0001_items_are_told"),
        ("contenttypes", "0002_remove_content_type_name"),
        ("auth", "0012_alter_user_first_name_max_length"),
    ]

    operations = [
        migrations.SeparateDatabaseAndState(
            state_operations=[
                migrations.RenameModel("ToldItem", "Notification"),
                migrations.AlterModelTable("Notification", "config_tolditem"),
                migrations.RenameField("Notification", "told_at", "notified_at"),
                migrations.RenameField("Notification", "over_at", "ended_at"),
                migrations.AlterField(
                    "Notification",
                    "notified_at",
                    models.DateTimeField(db_column="told_at", null=True),
                ),
                migrations.AlterField(
                    "Notification", "ended_at", models.DateTimeField(db_column="over_at", null=True)
                ),
            ],
        ),
        migrations.CreateModel(
            name="MailNotification",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("name", models.CharField(max_length=254, unique=True)),
                ("level", models.SmallIntegerField()),
                ("notified_at", models.DateTimeField(null=True)),
                ("ended_at", models.DateTimeField(null=True)),
                ("subject", models.TextField()),
                ("text", models.TextField()),
                ("path", models.TextField()),
            ],
            options={"ordering": ("name",), "abstract": False},
        ),
        migrations.RunPython(rename, rename_back),
    ]
