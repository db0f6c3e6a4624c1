"""Renames brakes to held suspensions; their table keeps its name.

The release before asks for its content type and permissions by their names until the upgrade is over. They stay as they
are, and whoever holds one holds the new one too. A later release deletes ``licensing.brake`` with its permissions.
"""

from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.state import StateApps

OLD, NEW = "brake", "heldsuspension"


def _copy_permissions(apps: StateApps, before: str, after: str) -> None:
    types = apps.get_model("contenttypes", "ContentType").objects
    kind = types.filter(app_label="licensing", model=before).first()
    if kind is None:
        # A new database gets its content types and permissions once all migrations are done.
        return
    copy, _ = types.get_or_create(app_label="licensing", model=after)
    permissions = apps.get_model("auth", "Permission").objects
    for held in permissions.filter(content_type=kind):
        codename = held.codename.replace(before, after)
        same, _ = permissions.get_or_create(
            content_type=copy, codename=codename, defaults={"name": held.name}
        )
        same.group_set.add(*held.group_set.all())
        same.user_set.add(*held.user_set.all())


def copy_permissions(apps: StateApps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    _copy_permissions(apps, OLD, NEW)


def copy_back(apps: StateApps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    _copy_permissions(apps, NEW, OLD)


class Migration(migrations.Migration):
    dependencies = [
        ("licensing", "0015_changes_by_hand_have_no_switch"),
        # It reads the permissions of brakes.
        ("accounts", "0036_operators_from_before_roles_get_one"),
        ("auth", "0012_alter_user_first_name_max_length"),
        ("contenttypes", "0002_remove_content_type_name"),
    ]

    operations = [
        # Of the state alone, in which Django renames no content type: an old process would make one without permissions.
        migrations.SeparateDatabaseAndState(
            state_operations=[
                migrations.AlterModelTable("Brake", "licensing_brake"),
                migrations.RenameModel("Brake", "HeldSuspension"),
            ]
        ),
        migrations.RunPython(copy_permissions, copy_back),
        migrations.AlterField(
            "Licence",
            "operator_until",
            models.DateTimeField(
                blank=True,
                help_text="When the operator's decision expires and billing applies again.",
                null=True,
            ),
        ),
    ]
