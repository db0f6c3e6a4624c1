import django.db.models.deletion
from django.db import migrations, models

OWN_VERSIONS = """
CREATE UNIQUE INDEX app_version_by_app ON releases_appversion (app_id, id);
ALTER TABLE releases_appchannel ADD CONSTRAINT app_channel_has_a_version_of_its_app
    FOREIGN KEY (app_id, version_id) REFERENCES releases_appversion (app_id, id) DEFERRABLE INITIALLY DEFERRED;
ALTER TABLE releases_apppin ADD CONSTRAINT app_pin_has_a_version_of_its_app
    FOREIGN KEY (app_id, version_id) REFERENCES releases_appversion (app_id, id) DEFERRABLE INITIALLY DEFERRED;
"""
ANY_VERSIONS = """
ALTER TABLE releases_apppin DROP CONSTRAINT app_pin_has_a_version_of_its_app;
ALTER TABLE releases_appchannel DROP CONSTRAINT app_channel_has_a_version_of_its_app;
DROP INDEX app_version_by_app;
"""


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0013_one_time_passwords_validated"),
        ("licensing", "0003_billing_by_the_night"),
        ("releases", "0001_initial"),
    ]

    operations = [
        migrations.CreateModel(
            name="MicroApp",
            fields=[
                ("slug", models.SlugField(max_length=60, primary_key=True, serialize=False)),
                ("created_at", models.DateTimeField()),
            ],
            options={
                "ordering": ("slug",),
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("slug__regex", "^[a-z0-9]+(-[a-z0-9]+)*$")),
                        name="app_slug_is_a_plain_word",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="AppVersion",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("version", models.CharField(max_length=120)),
                ("sha256", models.CharField(max_length=64)),
                ("size", models.BigIntegerField(help_text="Bytes.")),
                ("signature", models.BinaryField(help_text="The bundle's minisign file.")),
                (
                    "signed_with",
                    models.CharField(
                        help_text="The id of the key, as minisign prints it.", max_length=16
                    ),
                ),
                ("published_at", models.DateTimeField()),
                ("published_by", models.CharField(max_length=120)),
                (
                    "stored_at",
                    models.DateTimeField(
                        help_text="When storage had it; empty while that is under way.", null=True
                    ),
                ),
                ("withdrawn_at", models.DateTimeField(blank=True, null=True)),
                ("withdrawn_reason", models.TextField(blank=True)),
                (
                    "app",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="versions",
                        to="releases.microapp",
                    ),
                ),
            ],
            options={
                "ordering": ("app", "-published_at", "-id"),
                "constraints": [
                    models.UniqueConstraint(
                        fields=("app", "version"), name="one_row_per_app_and_version"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("sha256__regex", "^[0-9a-f]{64}$")),
                        name="bundle_sha256_is_lower_hex",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("size__gt", 0)), name="bundle_size_is_positive"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("withdrawn_at", None), ("withdrawn_reason", "")),
                            models.Q(
                                ("withdrawn_at__isnull", False),
                                models.Q(("withdrawn_reason", ""), _negated=True),
                            ),
                            _connector="OR",
                        ),
                        name="app_version_is_withdrawn_for_a_reason",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="AppPin",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("reason", models.TextField()),
                ("pinned_at", models.DateTimeField()),
                ("pinned_by", models.CharField(max_length=254)),
                (
                    "client",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        to="accounts.client",
                    ),
                ),
                (
                    "plan",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        to="licensing.plan",
                    ),
                ),
                (
                    "version",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="pins",
                        to="releases.appversion",
                    ),
                ),
                (
                    "app",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="pins",
                        to="releases.microapp",
                    ),
                ),
            ],
            options={
                "ordering": ("app", "id"),
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("client", None), ("plan__isnull", False)),
                            models.Q(("client__isnull", False), ("plan", None)),
                            _connector="OR",
                        ),
                        name="app_pin_is_for_a_client_or_a_plan",
                    ),
                    models.UniqueConstraint(
                        condition=models.Q(("client__isnull", False)),
                        fields=("app", "client"),
                        name="one_pin_per_app_and_client",
                    ),
                    models.UniqueConstraint(
                        condition=models.Q(("plan__isnull", False)),
                        fields=("app", "plan"),
                        name="one_pin_per_app_and_plan",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="AppChannel",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "name",
                    models.CharField(
                        choices=[("latest", "latest"), ("stable", "stable"), ("beta", "beta")],
                        max_length=10,
                    ),
                ),
                ("moved_at", models.DateTimeField()),
                ("moved_by", models.CharField(max_length=254)),
                (
                    "version",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="channels",
                        to="releases.appversion",
                    ),
                ),
                (
                    "app",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="channels",
                        to="releases.microapp",
                    ),
                ),
            ],
            options={
                "ordering": ("app", "name"),
                "constraints": [
                    models.UniqueConstraint(
                        fields=("app", "name"), name="one_row_per_app_and_channel"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("name__in", ["latest", "stable", "beta"])),
                        name="app_channel_is_known",
                    ),
                ],
            },
        ),
        migrations.RunSQL(OWN_VERSIONS, ANY_VERSIONS),
    ]
