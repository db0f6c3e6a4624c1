"""Releases of the shell and of micro apps, as release 1f2697d had them."""

from uuid import uuid4

from django.contrib.postgres.fields import ArrayField
from django.db import migrations, models
from django.db.models import Q

SHELL_CHANNEL = {
    "name": models.SlugField(max_length=40, primary_key=True, serialize=False),
    "fence": models.BigIntegerField(default=0),
    "leased_until": models.DateTimeField(blank=True, null=True),
    "halted_at": models.DateTimeField(
        blank=True, help_text="Since when an operator has it offer nothing.", null=True
    ),
    "unplaced_since": models.DateTimeField(
        blank=True,
        help_text="When it was to offer something else, until storage has that.",
        null=True,
    ),
}
SHELL_CHANNEL_OPTIONS = {
    "ordering": ("name",),
    "constraints": [
        models.CheckConstraint(
            condition=Q(("name__regex", "^[a-z0-9]+(-[a-z0-9]+)*$")),
            name="shell_channel_name_is_a_plain_word",
        ),
    ],
}
SHELL_RELEASE = {
    "id": models.BigAutoField(
        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
    ),
    "version": models.CharField(max_length=120),
    "manifest": models.BinaryField(help_text="The document exactly as it was published."),
    "manifest_sha256": models.CharField(max_length=64),
    "platforms": ArrayField(
        base_field=models.CharField(max_length=40), help_text="The ids it offers.", size=None
    ),
    "published_at": models.DateTimeField(help_text="When it was published for the first time."),
    "published_by": models.CharField(max_length=120),
    "channel": models.ForeignKey(
        on_delete=models.PROTECT, related_name="releases", to="releases.shellchannel"
    ),
}
SHELL_RELEASE_OPTIONS = {
    "ordering": ("-published_at", "-id"),
    "constraints": [
        models.UniqueConstraint(
            fields=("channel", "version"), name="one_release_per_channel_and_version"
        ),
        models.CheckConstraint(
            condition=Q(("manifest_sha256__regex", "^[0-9a-f]{64}$")),
            name="release_sha256_is_lower_hex",
        ),
    ],
}
SHELL_ARTIFACT = {
    "id": models.BigAutoField(
        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
    ),
    "platform": models.CharField(max_length=40),
    "url": models.TextField(),
    "sha256": models.CharField(max_length=64),
    "size": models.BigIntegerField(help_text="Bytes."),
    "cache_control": models.CharField(
        blank=True, help_text="As the CDN answered; empty where it had none.", max_length=200
    ),
    "release": models.ForeignKey(
        on_delete=models.CASCADE, related_name="artifacts", to="releases.shellrelease"
    ),
}
SHELL_ARTIFACT_OPTIONS = {
    "ordering": ("release", "platform"),
    "constraints": [
        models.UniqueConstraint(
            fields=("release", "platform"), name="one_artifact_per_release_and_platform"
        ),
        models.CheckConstraint(
            condition=Q(("sha256__regex", "^[0-9a-f]{64}$")), name="artifact_sha256_is_lower_hex"
        ),
        models.CheckConstraint(condition=Q(("size__gt", 0)), name="artifact_size_is_positive"),
    ],
}
PUBLICATION = {
    "id": models.BigAutoField(
        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
    ),
    "signature": models.BinaryField(help_text="The manifest's minisign file."),
    "signed_at": models.DateTimeField(help_text="As the trusted comment says."),
    "published_at": models.DateTimeField(),
    "published_by": models.CharField(max_length=120),
    "stored_at": models.DateTimeField(
        help_text="When storage had it; empty while that is under way.", null=True
    ),
    "release": models.ForeignKey(
        on_delete=models.PROTECT, related_name="publications", to="releases.shellrelease"
    ),
}
PUBLICATION_OPTIONS = {
    "ordering": ("-id",),
    "indexes": [
        models.Index(fields=["release", "-id"], name="publication_of_release"),
    ],
}
MICRO_APP = {
    "slug": models.SlugField(max_length=60, primary_key=True, serialize=False),
    "created_at": models.DateTimeField(),
}
MICRO_APP_OPTIONS = {
    "ordering": ("slug",),
    "constraints": [
        models.CheckConstraint(
            condition=Q(("slug__regex", "^[a-z0-9]+(-[a-z0-9]+)*$")),
            name="app_slug_is_a_plain_word",
        ),
    ],
}
APP_VERSION = {
    "id": models.BigAutoField(
        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
    ),
    "version": models.CharField(max_length=120),
    "sha256": models.CharField(max_length=64),
    "size": models.BigIntegerField(help_text="Bytes."),
    "signature": models.BinaryField(help_text="The bundle's minisign file."),
    "signed_with": models.CharField(
        help_text="The id of the key, as minisign prints it.", max_length=16
    ),
    "published_at": models.DateTimeField(),
    "published_by": models.CharField(max_length=120),
    "stored_at": models.DateTimeField(
        help_text="When storage had it; empty while that is under way.", null=True
    ),
    "withdrawn_at": models.DateTimeField(blank=True, null=True),
    "withdrawn_reason": models.TextField(blank=True),
    "app": models.ForeignKey(
        on_delete=models.PROTECT, related_name="versions", to="releases.microapp"
    ),
}
APP_VERSION_OPTIONS = {
    "ordering": ("app", "-published_at", "-id"),
    "constraints": [
        models.UniqueConstraint(fields=("app", "version"), name="one_row_per_app_and_version"),
        models.CheckConstraint(
            condition=Q(("sha256__regex", "^[0-9a-f]{64}$")), name="bundle_sha256_is_lower_hex"
        ),
        models.CheckConstraint(condition=Q(("size__gt", 0)), name="bundle_size_is_positive"),
        models.CheckConstraint(
            condition=Q(
                Q(("withdrawn_at", None), ("withdrawn_reason", "")),
                Q(("withdrawn_at__isnull", False), Q(("withdrawn_reason", ""), _negated=True)),
                _connector="OR",
            ),
            name="app_version_is_withdrawn_for_a_reason",
        ),
    ],
}
APP_PIN = {
    "id": models.BigAutoField(
        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
    ),
    "reason": models.TextField(),
    "pinned_at": models.DateTimeField(),
    "pinned_by": models.CharField(max_length=254),
    "client": models.ForeignKey(
        blank=True, null=True, on_delete=models.CASCADE, to="accounts.client"
    ),
    "plan": models.ForeignKey(blank=True, null=True, on_delete=models.PROTECT, to="licensing.plan"),
    "version": models.ForeignKey(
        on_delete=models.PROTECT, related_name="pins", to="releases.appversion"
    ),
    "app": models.ForeignKey(on_delete=models.PROTECT, related_name="pins", to="releases.microapp"),
}
APP_PIN_OPTIONS = {
    "ordering": ("app", "id"),
    "constraints": [
        models.CheckConstraint(
            condition=Q(
                Q(("client", None), ("plan__isnull", False)),
                Q(("client__isnull", False), ("plan", None)),
                _connector="OR",
            ),
            name="app_pin_is_for_a_client_or_a_plan",
        ),
        models.UniqueConstraint(
            condition=Q(("client__isnull", False)),
            fields=("app", "client"),
            name="one_pin_per_app_and_client",
        ),
        models.UniqueConstraint(
            condition=Q(("plan__isnull", False)),
            fields=("app", "plan"),
            name="one_pin_per_app_and_plan",
        ),
    ],
}
APP_CHANNEL = {
    "id": models.BigAutoField(
        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
    ),
    "name": models.CharField(
        choices=[("latest", "latest"), ("stable", "stable"), ("beta", "beta")], max_length=10
    ),
    "moved_at": models.DateTimeField(),
    "moved_by": models.CharField(max_length=254),
    "version": models.ForeignKey(
        on_delete=models.PROTECT, related_name="channels", to="releases.appversion"
    ),
    "app": models.ForeignKey(
        on_delete=models.PROTECT, related_name="channels", to="releases.microapp"
    ),
}
APP_CHANNEL_OPTIONS = {
    "ordering": ("app", "name"),
    "constraints": [
        models.UniqueConstraint(fields=("app", "name"), name="one_row_per_app_and_channel"),
        models.CheckConstraint(
            condition=Q(("name__in", ["latest", "stable", "beta"])), name="app_channel_is_known"
        ),
    ],
}
SERVED_TOKEN = {
    "id_sha256": models.CharField(
        help_text="SHA-256 of issuer and `jti`, in lower hex.",
        max_length=64,
        primary_key=True,
        serialize=False,
    ),
    "body_sha256": models.CharField(help_text="SHA-256 of the document.", max_length=64),
    "forget_at": models.DateTimeField(
        db_index=True, help_text="When nobody takes the token any more."
    ),
}
SERVED_TOKEN_OPTIONS = {
    "ordering": ("forget_at",),
    "constraints": [
        models.CheckConstraint(
            condition=Q(
                ("id_sha256__regex", "^[0-9a-f]{64}$"), ("body_sha256__regex", "^[0-9a-f]{64}$")
            ),
            name="served_token_sums_are_lower_hex",
        ),
    ],
}
PURGE = {
    "id": models.BigAutoField(
        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
    ),
    "reference": models.UUIDField(
        default=uuid4, help_text="What this is called at the CDN, which does the same thing once."
    ),
    "rounds": models.PositiveIntegerField(
        default=0, help_text="How often the CDN said that it was done and was not."
    ),
    "asked_at": models.DateTimeField(),
    "attempts": models.PositiveIntegerField(default=0),
    "tried_at": models.DateTimeField(null=True),
    "due_at": models.DateTimeField(help_text="When the next try is queued for."),
    "failure": models.CharField(blank=True, max_length=40),
    "told_at": models.DateTimeField(help_text="When operators were mailed about it.", null=True),
    "confirmed_at": models.DateTimeField(null=True),
    "channel": models.ForeignKey(
        on_delete=models.PROTECT, related_name="purges", to="releases.shellchannel"
    ),
    "publication": models.ForeignKey(
        help_text="What it has to serve; empty: nothing, because the channel was halted.",
        null=True,
        on_delete=models.PROTECT,
        related_name="purges",
        to="releases.publication",
    ),
}
PURGE_OPTIONS = {
    "ordering": ("-id",),
    "indexes": [
        models.Index(fields=["channel", "-id"], name="purge_of_channel"),
    ],
}
# A channel or a pin of an app offers a version of that app.
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
    replaces = [
        ("releases", "0001_initial"),
        ("releases", "0002_micro_apps"),
        ("releases", "0003_served_tokens"),
        ("releases", "0004_purges_and_halted_channels"),
    ]
    initial = True
    dependencies = [
        ("accounts", "0001_squashed_0026_second_factors"),
        ("licensing", "0001_squashed_0008_plans_may_have_personal_keys"),
    ]

    operations = [
        migrations.CreateModel("ShellChannel", list(SHELL_CHANNEL.items()), SHELL_CHANNEL_OPTIONS),
        migrations.CreateModel("ShellRelease", list(SHELL_RELEASE.items()), SHELL_RELEASE_OPTIONS),
        migrations.CreateModel(
            "ShellArtifact", list(SHELL_ARTIFACT.items()), SHELL_ARTIFACT_OPTIONS
        ),
        migrations.CreateModel("Publication", list(PUBLICATION.items()), PUBLICATION_OPTIONS),
        migrations.CreateModel("MicroApp", list(MICRO_APP.items()), MICRO_APP_OPTIONS),
        migrations.CreateModel("AppVersion", list(APP_VERSION.items()), APP_VERSION_OPTIONS),
        migrations.CreateModel("AppPin", list(APP_PIN.items()), APP_PIN_OPTIONS),
        migrations.CreateModel("AppChannel", list(APP_CHANNEL.items()), APP_CHANNEL_OPTIONS),
        migrations.CreateModel("ServedToken", list(SERVED_TOKEN.items()), SERVED_TOKEN_OPTIONS),
        migrations.CreateModel("Purge", list(PURGE.items()), PURGE_OPTIONS),
        migrations.RunSQL(OWN_VERSIONS, ANY_VERSIONS),
    ]
