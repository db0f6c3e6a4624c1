"""People, sessions, connections, operators and the audit log, as release 1f2697d had them."""

from datetime import UTC, datetime
from uuid import uuid4

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.indexes import OpClass
from django.db import migrations, models
from django.db.models import F, Q
from django.db.models.functions import Lower, Upper
from django.utils import timezone

from accounts.models.people import EmailAddressField

# Python's range of dates.
FIRST, LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
CLIENT = {
    "id": models.UUIDField(default=uuid4, editable=False, primary_key=True, serialize=False),
    "name": models.CharField(max_length=200),
    "created_at": models.DateTimeField(default=timezone.now, editable=False),
    "alert_email": EmailAddressField(
        blank=True,
        db_default="",
        default="",
        help_text="Mailed, as operators are, when one of its people has used up a monthly cap.",
        max_length=254,
    ),
}
AUDIT_EVENT = {
    "id": models.BigAutoField(primary_key=True, serialize=False),
    "at": models.DateTimeField(),
    "action": models.CharField(help_text="subject:action", max_length=64),
    "actor": models.CharField(
        blank=True, help_text="email, or the name of a command", max_length=254
    ),
    "actor_id": models.UUIDField(null=True),
    "target": models.CharField(blank=True, help_text="what the target is called", max_length=254),
    "target_id": models.CharField(blank=True, max_length=64),
    "address": models.GenericIPAddressField(null=True),
    "request_id": models.CharField(blank=True, max_length=64),
    "reason": models.TextField(blank=True),
    "before": models.JSONField(null=True),
    "after": models.JSONField(null=True),
}
AUDIT_EVENT_OPTIONS = {
    "ordering": ("-at", "-id"),
    "indexes": [
        models.Index(fields=["-at", "-id"], name="audit_newest_first"),
        models.Index(fields=["target_id", "-at"], name="audit_by_target"),
        models.Index(
            fields=["action", "at"],
            name="audit_by_action",
            opclasses=("varchar_pattern_ops", "timestamptz_ops"),
        ),
        models.Index(OpClass(Upper("actor"), name="text_pattern_ops"), name="audit_by_actor_name"),
        models.Index(
            OpClass(Upper("target"), name="text_pattern_ops"), name="audit_by_target_name"
        ),
        models.Index(
            condition=Q(("request_id", ""), _negated=True),
            fields=["request_id"],
            name="audit_by_request",
        ),
        models.Index(fields=["address"], name="audit_by_address"),
        models.Index(fields=["actor_id"], name="audit_by_actor"),
    ],
    "constraints": [
        models.CheckConstraint(
            condition=Q(("action__regex", "^[a-z_]+:[a-z_]+$")),
            name="audit_action_is_subject_and_verb",
        ),
    ],
}
USER = {
    "password": models.CharField(max_length=128, verbose_name="password"),
    "last_login": models.DateTimeField(blank=True, null=True, verbose_name="last login"),
    "is_superuser": models.BooleanField(
        default=False,
        help_text="Designates that this user has all permissions without explicitly assigning them.",
        verbose_name="superuser status",
    ),
    "id": models.UUIDField(default=uuid4, editable=False, primary_key=True, serialize=False),
    "email": EmailAddressField(max_length=254, unique=True),
    "is_active": models.BooleanField(default=True, verbose_name="enabled"),
    "is_staff": models.BooleanField(default=False, verbose_name="operator"),
    "epoch": models.PositiveIntegerField(default=0, editable=False),
    "created_at": models.DateTimeField(default=timezone.now, editable=False),
    "groups": models.ManyToManyField(
        blank=True,
        help_text="The groups this user belongs to. A user will get all permissions granted to each of their groups.",
        related_name="user_set",
        related_query_name="user",
        to="auth.group",
        verbose_name="groups",
    ),
    "user_permissions": models.ManyToManyField(
        blank=True,
        help_text="Specific permissions for this user.",
        related_name="user_set",
        related_query_name="user",
        to="auth.permission",
        verbose_name="user permissions",
    ),
    "client": models.ForeignKey(
        blank=True, null=True, on_delete=models.PROTECT, related_name="users", to="accounts.client"
    ),
    "invited_at": models.DateTimeField(
        blank=True, editable=False, help_text="when an invitation was last asked for", null=True
    ),
    "erased_at": models.DateTimeField(blank=True, editable=False, null=True),
}
USER_OPTIONS = {
    "ordering": ("email",),
    "indexes": [
        models.Index(condition=Q(("is_staff", True)), fields=["email"], name="user_operators"),
    ],
    "constraints": [
        models.CheckConstraint(
            condition=Q(("email", Lower("email"))), name="user_email_is_lower_case"
        ),
        models.CheckConstraint(
            condition=Q(
                ("erased_at", None),
                Q(
                    ("email__endswith", "@erased.invalid"),
                    ("invited_at", None),
                    ("is_active", False),
                    ("is_staff", False),
                    ("is_superuser", False),
                    ("last_login", None),
                    ("password__startswith", "!"),
                ),
                _connector="OR",
            ),
            name="user_erased_is_nobody",
        ),
    ],
}
SESSION = {
    "id": models.UUIDField(default=uuid4, editable=False, primary_key=True, serialize=False),
    "device_fp": models.CharField(blank=True, max_length=200, verbose_name="device"),
    "started_at": models.DateTimeField(),
    "last_used_at": models.DateTimeField(),
    "expires_at": models.DateTimeField(blank=True, null=True),
    "ended_at": models.DateTimeField(blank=True, null=True),
    "ended_by": models.CharField(
        blank=True,
        choices=[
            ("logout", "signed out"),
            ("revoked", "revoked"),
            ("password", "a new password was set"),
            ("disabled", "the person was disabled"),
            ("reuse", "a replaced token was presented again"),
        ],
        max_length=10,
    ),
    "user": models.ForeignKey(
        on_delete=models.CASCADE, related_name="sessions", to=settings.AUTH_USER_MODEL
    ),
    "started_from": models.GenericIPAddressField(blank=True, null=True),
    "last_used_from": models.GenericIPAddressField(blank=True, null=True),
}
SESSION_OPTIONS = {
    "ordering": ("-started_at", "id"),
    "indexes": [
        models.Index(fields=["started_at"], name="session_by_start"),
        models.Index(
            condition=Q(("ended_at__isnull", False)),
            fields=["ended_at", "id"],
            name="session_by_end",
        ),
        models.Index(
            condition=Q(("ended_by", ""), _negated=True),
            fields=["ended_by", "started_at"],
            name="session_by_why_it_ended",
        ),
        models.Index(
            fields=["device_fp"], name="session_by_device", opclasses=("varchar_pattern_ops",)
        ),
    ],
    "constraints": [
        models.CheckConstraint(
            condition=Q(
                Q(("ended_at", None), ("ended_by", "")),
                Q(("ended_at__isnull", False), Q(("ended_by", ""), _negated=True)),
                _connector="OR",
            ),
            name="session_end_has_a_reason",
        ),
        models.CheckConstraint(
            condition=Q(Q(("expires_at__gte", FIRST), ("expires_at__lte", LAST))),
            name="session_expiry_is_readable",
        ),
    ],
}
REFRESH_TOKEN = {
    "id": models.UUIDField(editable=False, primary_key=True, serialize=False),
    "token_hash": models.CharField(max_length=128),
    "device_fp": models.CharField(blank=True, max_length=200, verbose_name="device"),
    "issued_at": models.DateTimeField(),
    "expires_at": models.DateTimeField(),
    "revoked_at": models.DateTimeField(blank=True, null=True),
    "replaced_at": models.DateTimeField(blank=True, null=True),
    "replaced_from": models.GenericIPAddressField(blank=True, null=True),
    "replaced_by": models.OneToOneField(
        blank=True,
        null=True,
        on_delete=models.DO_NOTHING,
        related_name="replaces",
        to="accounts.refreshtoken",
    ),
    "user": models.ForeignKey(
        on_delete=models.CASCADE, related_name="refresh_tokens", to=settings.AUTH_USER_MODEL
    ),
    "session": models.ForeignKey(
        on_delete=models.CASCADE, related_name="refresh_tokens", to="accounts.session"
    ),
    "retry_box": models.BinaryField(null=True),
}
REFRESH_TOKEN_OPTIONS = {
    "ordering": ("-issued_at", "id"),
    "indexes": [
        models.Index(
            condition=Q(("retry_box__isnull", False)),
            fields=["replaced_at"],
            name="token_retry_box_by_age",
        ),
        models.Index(fields=["issued_at"], name="token_by_issue"),
        models.Index(
            condition=Q(("replaced_at", None), ("revoked_at", None)),
            fields=["expires_at", "id"],
            name="token_last_by_expiry",
        ),
        models.Index(
            condition=Q(("revoked_at__isnull", False)),
            fields=["issued_at"],
            name="token_revoked_by_issue",
        ),
    ],
    "constraints": [
        models.CheckConstraint(
            condition=Q(("expires_at__gt", F("issued_at"))), name="token_expires_later"
        ),
        models.CheckConstraint(
            condition=Q(("replaced_by", F("id")), _negated=True), name="token_replaces_another"
        ),
        models.CheckConstraint(
            condition=Q(("replaced_by", None), ("replaced_at__isnull", False), _connector="OR"),
            name="token_replacement_has_a_moment",
        ),
        models.CheckConstraint(
            condition=Q(
                ("retry_box", None),
                Q(("replaced_at__isnull", False), ("revoked_at", None)),
                _connector="OR",
            ),
            name="token_box_ends_with_its_token",
        ),
        models.UniqueConstraint(
            condition=Q(("replaced_at", None), ("revoked_at", None)),
            fields=("session",),
            name="token_is_the_last_of_its_chain",
        ),
        models.CheckConstraint(
            condition=Q(Q(("expires_at__gte", FIRST), ("expires_at__lte", LAST))),
            name="token_expiry_is_readable",
        ),
    ],
}
SIGNING_KEY = {
    "kid": models.CharField(
        help_text="RFC 7638 thumbprint", max_length=43, primary_key=True, serialize=False
    ),
    "public_pem": models.TextField(),
    "private_key": models.BinaryField(),
    "published_at": models.DateTimeField(),
    "signs_from": models.DateTimeField(),
    "superseded_at": models.DateTimeField(blank=True, null=True),
    "revoked_at": models.DateTimeField(blank=True, null=True),
}
SIGNING_KEY_OPTIONS = {
    "ordering": ("-signs_from", "kid"),
    "constraints": [
        models.CheckConstraint(
            condition=Q(("signs_from__gte", F("published_at"))),
            name="key_is_published_before_it_signs",
        ),
        models.CheckConstraint(
            condition=Q(
                ("superseded_at", None), ("superseded_at__gte", F("signs_from")), _connector="OR"
            ),
            name="key_signs_before_it_is_superseded",
        ),
    ],
}
PASSWORD_LINK = {
    "id": models.BigAutoField(primary_key=True, serialize=False),
    "kind": models.CharField(
        choices=[
            ("reset", "reset"),
            ("invitation", "invitation"),
            ("one_time", "one-time password"),
        ],
        max_length=10,
    ),
    "secret_hash": models.CharField(editable=False, max_length=64, unique=True),
    "epoch": models.PositiveIntegerField(help_text="the person's epoch when it was made"),
    "made_at": models.DateTimeField(),
    "expires_at": models.DateTimeField(),
    "used_at": models.DateTimeField(blank=True, null=True),
    "user": models.ForeignKey(
        on_delete=models.CASCADE, related_name="password_links", to=settings.AUTH_USER_MODEL
    ),
}
PASSWORD_LINK_OPTIONS = {
    "ordering": ("-id",),
    "constraints": [
        models.CheckConstraint(
            condition=Q(("expires_at__gt", F("made_at"))), name="password_link_expires_later"
        ),
        models.CheckConstraint(
            condition=Q(("kind__in", ("reset", "invitation", "one_time"))),
            name="password_link_is_one_of_three",
        ),
    ],
}
CONNECTION = {
    "id": models.BigAutoField(primary_key=True, serialize=False),
    "provider": models.CharField(max_length=40),
    "scopes": ArrayField(
        base_field=models.CharField(max_length=500), blank=True, default=list, size=None
    ),
    "access_token": models.BinaryField(),
    "refresh_token": models.BinaryField(null=True),
    "connected_at": models.DateTimeField(help_text="when the person last agreed"),
    "refreshed_at": models.DateTimeField(help_text="when the provider last gave tokens"),
    "expires_at": models.DateTimeField(help_text="of the access token", null=True),
    "lapsed_at": models.DateTimeField(null=True),
    "lapse": models.CharField(
        blank=True,
        choices=[
            ("refused", "the provider accepts the grant no longer"),
            ("answer_lost", "refused after an answer of the provider was lost"),
            ("expired", "it ran out, and the provider gave nothing to renew it with"),
        ],
        max_length=20,
    ),
    "failed_at": models.DateTimeField(null=True),
    "failure": models.CharField(
        blank=True,
        choices=[
            ("unreachable", "could not be reached"),
            ("timed_out", "took too long"),
            ("overloaded", "asked to wait"),
            ("failed", "failed, or answered something that is no answer"),
            ("client_refused", "does not know our client, or its secret"),
        ],
        max_length=20,
    ),
    "ask_again_at": models.DateTimeField(
        help_text="the provider is left alone until then", null=True
    ),
    "generation": models.BigIntegerField(default=1, editable=False),
    "fence": models.BigIntegerField(default=0, editable=False),
    "leased_until": models.DateTimeField(editable=False, null=True),
    "answer_lost": models.BooleanField(default=False, editable=False),
    "user": models.ForeignKey(
        on_delete=models.CASCADE, related_name="connections", to=settings.AUTH_USER_MODEL
    ),
}
CONNECTION_OPTIONS = {
    "ordering": ("provider", "id"),
    "constraints": [
        models.UniqueConstraint(
            fields=("user", "provider"), name="one_connection_per_user_and_provider"
        ),
        models.CheckConstraint(
            condition=Q(("provider__regex", "^[a-z0-9][a-z0-9_-]*$")),
            name="connection_provider_is_a_plain_word",
        ),
        models.CheckConstraint(
            condition=Q(
                Q(("lapse", ""), ("lapsed_at", None)),
                Q(("lapsed_at__isnull", False), Q(("lapse", ""), _negated=True)),
                _connector="OR",
            ),
            name="connection_lapse_has_a_reason",
        ),
        models.CheckConstraint(
            condition=Q(
                Q(("failed_at", None), ("failure", "")),
                Q(("failed_at__isnull", False), Q(("failure", ""), _negated=True)),
                _connector="OR",
            ),
            name="connection_failure_has_a_kind",
        ),
    ],
}
CONNECTION_ATTEMPT = {
    "id": models.BigAutoField(primary_key=True, serialize=False),
    "state_hash": models.CharField(editable=False, max_length=64, unique=True),
    "provider": models.CharField(max_length=40),
    "redirect_uri": models.CharField(max_length=200),
    "verifier": models.BinaryField(),
    "began_at": models.DateTimeField(),
    "expires_at": models.DateTimeField(),
    "session": models.ForeignKey(
        on_delete=models.CASCADE, related_name="connection_attempts", to="accounts.session"
    ),
    "user": models.ForeignKey(
        on_delete=models.CASCADE, related_name="connection_attempts", to=settings.AUTH_USER_MODEL
    ),
}
CONNECTION_ATTEMPT_OPTIONS = {
    "ordering": ("-id",),
    "constraints": [
        models.CheckConstraint(
            condition=Q(("expires_at__gt", F("began_at"))), name="connection_attempt_expires_later"
        ),
    ],
    "indexes": [
        models.Index(fields=["expires_at"], name="connection_attempt_by_end"),
    ],
}
CONNECTION_REVOCATION = {
    "id": models.BigAutoField(primary_key=True, serialize=False),
    "provider": models.CharField(max_length=40),
    "user_id": models.UUIDField(verbose_name="user"),
    "tokens": models.BinaryField(),
    "asked_at": models.DateTimeField(),
    "due_at": models.DateTimeField(help_text="when it is tried next"),
    "attempts": models.PositiveIntegerField(default=0),
    "tried_at": models.DateTimeField(null=True),
    "failure": models.CharField(blank=True, help_text="of the last attempt", max_length=20),
    "gave_up_at": models.DateTimeField(null=True),
}
CONNECTION_REVOCATION_OPTIONS = {
    "ordering": ("-id",),
    "indexes": [
        models.Index(fields=["user_id", "provider"], name="revocation_by_user"),
        models.Index(
            condition=Q(("gave_up_at", None)), fields=["due_at"], name="revocation_by_next_attempt"
        ),
    ],
}
AUDIT_POSITION = {
    "id": models.SmallIntegerField(default=1, primary_key=True, serialize=False),
    "event_id": models.BigIntegerField(help_text="the last event that was taken"),
    "at": models.DateTimeField(help_text="when it was taken"),
}
AUDIT_POSITION_OPTIONS = {
    "ordering": ("id",),
    "constraints": [
        models.CheckConstraint(condition=Q(("id", 1)), name="audit_position_is_one"),
    ],
}
SET_UP_CODE = {
    "user": models.OneToOneField(
        on_delete=models.CASCADE,
        primary_key=True,
        related_name="+",
        serialize=False,
        to=settings.AUTH_USER_MODEL,
    ),
    "secret_hash": models.CharField(editable=False, max_length=64),
    "expires_at": models.DateTimeField(),
}
AUTHENTICATOR = {
    "id": models.BigAutoField(
        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
    ),
    "name": models.CharField(help_text="The human-readable name of this device.", max_length=64),
    "confirmed": models.BooleanField(default=True, help_text="Is this device ready for use?"),
    "throttling_failure_timestamp": models.DateTimeField(
        blank=True,
        default=None,
        help_text="A timestamp of the last failed verification attempt. Null if last attempt succeeded.",
        null=True,
    ),
    "throttling_failure_count": models.PositiveIntegerField(
        default=0, help_text="Number of successive failed attempts."
    ),
    "created_at": models.DateTimeField(
        auto_now_add=True,
        help_text="The date and time when this device was initially created in the system.",
        null=True,
    ),
    "last_used_at": models.DateTimeField(
        blank=True, help_text="The most recent date and time this device was used.", null=True
    ),
    "key": models.BinaryField(),
    "last_step": models.BigIntegerField(default=-1, editable=False),
    "user": models.ForeignKey(
        help_text="The user that this device belongs to.",
        on_delete=models.CASCADE,
        to=settings.AUTH_USER_MODEL,
    ),
}
CONSOLE_SESSION = {
    "id": models.UUIDField(default=uuid4, editable=False, primary_key=True, serialize=False),
    "epoch": models.PositiveIntegerField(help_text="the operator's epoch when it was last used"),
    "browser": models.CharField(blank=True, max_length=200),
    "started_at": models.DateTimeField(),
    "started_from": models.GenericIPAddressField(null=True),
    "last_used_at": models.DateTimeField(),
    "ended_at": models.DateTimeField(blank=True, null=True),
    "user": models.ForeignKey(
        on_delete=models.CASCADE, related_name="console_sessions", to=settings.AUTH_USER_MODEL
    ),
}
RECOVERY_CODES = {
    "id": models.BigAutoField(
        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
    ),
    "name": models.CharField(help_text="The human-readable name of this device.", max_length=64),
    "confirmed": models.BooleanField(default=True, help_text="Is this device ready for use?"),
    "throttling_failure_timestamp": models.DateTimeField(
        blank=True,
        default=None,
        help_text="A timestamp of the last failed verification attempt. Null if last attempt succeeded.",
        null=True,
    ),
    "throttling_failure_count": models.PositiveIntegerField(
        default=0, help_text="Number of successive failed attempts."
    ),
    "created_at": models.DateTimeField(
        auto_now_add=True,
        help_text="The date and time when this device was initially created in the system.",
        null=True,
    ),
    "last_used_at": models.DateTimeField(
        blank=True, help_text="The most recent date and time this device was used.", null=True
    ),
    "hashes": ArrayField(base_field=models.CharField(max_length=128), editable=False, size=None),
    "user": models.ForeignKey(
        help_text="The user that this device belongs to.",
        on_delete=models.CASCADE,
        to=settings.AUTH_USER_MODEL,
    ),
}
RECOVERY_CODES_OPTIONS = {
    "ordering": ("id",),
    "constraints": [
        models.UniqueConstraint(fields=("user",), name="recovery_codes_once_a_person"),
    ],
}
# The audit log is append-only in the database itself: only pruning, which says so, may delete, and nobody may truncate.
APPEND_ONLY = """
CREATE FUNCTION accounts_audit_is_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' AND current_setting('accounts.pruning_audit', true) = 'on' THEN
        RETURN OLD;
    END IF;
    RAISE EXCEPTION 'audit events are append-only' USING ERRCODE = 'integrity_constraint_violation';
END $$;
CREATE TRIGGER audit_is_append_only BEFORE UPDATE OR DELETE ON accounts_auditevent
    FOR EACH ROW EXECUTE FUNCTION accounts_audit_is_append_only();
CREATE FUNCTION accounts_audit_is_not_emptied() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'audit events are append-only' USING ERRCODE = 'integrity_constraint_violation';
END $$;
CREATE TRIGGER audit_is_not_emptied BEFORE TRUNCATE ON accounts_auditevent
    FOR EACH STATEMENT EXECUTE FUNCTION accounts_audit_is_not_emptied();
"""
# A trigger empties the retry box of a revoked token, so that an operator's SQL needs no knowledge of it.
EMPTY_BOXES = """
CREATE FUNCTION accounts_box_ends_with_its_token() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.retry_box := NULL;
    RETURN NEW;
END $$;
CREATE TRIGGER box_ends_with_its_token BEFORE UPDATE OF revoked_at ON accounts_refreshtoken
    FOR EACH ROW WHEN (NEW.revoked_at IS NOT NULL AND NEW.retry_box IS NOT NULL)
    EXECUTE FUNCTION accounts_box_ends_with_its_token();
"""
# A trigger and no constraint, because operators of earlier releases may belong to a client, and a constraint would
# refuse every change of their rows. A new row may be without a password: `createsuperuser` mails a link afterwards.
OPERATORS = """
CREATE FUNCTION accounts_operator_is_nobodys() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND OLD.is_staff AND OLD.client_id IS NOT DISTINCT FROM NEW.client_id THEN
        RETURN NEW;
    END IF;
    IF NEW.client_id IS NOT NULL THEN
        RAISE EXCEPTION 'an operator belongs to no client'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'user_operator_has_no_client';
    END IF;
    IF TG_OP = 'UPDATE' AND NOT OLD.is_staff AND starts_with(NEW.password, '!') THEN
        RAISE EXCEPTION 'an operator has set a password'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'user_operator_has_a_password';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER operator_is_nobodys BEFORE INSERT OR UPDATE OF is_staff, client_id ON accounts_user
    FOR EACH ROW WHEN (NEW.is_staff AND NEW.erased_at IS NULL)
    EXECUTE FUNCTION accounts_operator_is_nobodys();
"""
UNGUARD = """
DROP FUNCTION accounts_audit_is_append_only(), accounts_audit_is_not_emptied(), accounts_box_ends_with_its_token(),
    accounts_operator_is_nobodys() CASCADE;
"""
# By default a table is only looked after once a fifth of it has changed, which in a large one is weeks of sessions.
# A session is noted as used at every refresh; room in its page keeps that from touching its indexes.
TEND = """
ALTER TABLE accounts_auditevent SET (
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_insert_scale_factor = 0.01,
    autovacuum_analyze_scale_factor = 0.01
);
ALTER TABLE accounts_refreshtoken SET (
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_insert_scale_factor = 0.01,
    autovacuum_analyze_scale_factor = 0.01
);
ALTER TABLE accounts_session SET (
    fillfactor = 80,
    autovacuum_vacuum_scale_factor = 0.05,
    autovacuum_analyze_scale_factor = 0.02
);
"""
# The service's role needs no right to delete: pruning is a function of the table's owner. Its search path is fixed, so
# that no other schema can put a table of its own in place of this one. Events of the last day stay, whatever it is asked
# for. The setting is not given by SET at the function: only a superuser may do that. An error undoes it.
PRUNE = """
DO $do$ BEGIN EXECUTE format($create$
CREATE FUNCTION accounts_prune_audit(starting timestamptz, ending timestamptz, most integer)
    RETURNS TABLE (removed bigint, latest timestamptz)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, %I, pg_temp
AS $$
DECLARE before text := coalesce(current_setting('accounts.pruning_audit', true), '');
BEGIN
    PERFORM set_config('accounts.pruning_audit', 'on', true);
    WITH oldest AS (
        SELECT id, at FROM accounts_auditevent
        WHERE at >= starting AND at < LEAST(ending, now() - interval '1 day')
        ORDER BY at LIMIT most FOR UPDATE SKIP LOCKED
    ), deleted AS (
        DELETE FROM accounts_auditevent WHERE id = ANY (ARRAY(SELECT id FROM oldest)) RETURNING 1
    )
    SELECT (SELECT count(*) FROM deleted), (SELECT max(at) FROM oldest) INTO removed, latest;
    PERFORM set_config('accounts.pruning_audit', before, true);
    RETURN NEXT;
END $$
$create$, current_schema()); END $do$;
REVOKE ALL ON FUNCTION accounts_prune_audit(timestamptz, timestamptz, integer) FROM PUBLIC;
"""
UNPRUNE = "DROP FUNCTION accounts_prune_audit(timestamptz, timestamptz, integer)"
# Default privileges of a database whose roles were split before grant all of a new table.
ONLY_PRUNED = """
DO $$ DECLARE other record; BEGIN
    FOR other IN
        SELECT acl.grantee::regrole::text AS name, bool_or(acl.privilege_type = 'DELETE') AS prunes
        FROM pg_class, aclexplode(relacl) AS acl
        WHERE pg_class.oid = 'accounts_auditevent'::regclass AND acl.grantee NOT IN (relowner, 0)
        GROUP BY acl.grantee
    LOOP
        EXECUTE format('REVOKE UPDATE, DELETE, TRUNCATE ON accounts_auditevent FROM %s', other.name);
        IF other.prunes THEN
            EXECUTE format(
                'GRANT EXECUTE ON FUNCTION accounts_prune_audit(timestamptz, timestamptz, integer) TO %s', other.name
            );
        END IF;
    END LOOP;
END $$;
"""
# Roles are groups without permissions.
ROLES = "INSERT INTO auth_group (name) VALUES ('support'), ('licensing'), ('release'), ('auditor'), ('owner')"
NO_ROLES = """
DELETE FROM accounts_user_groups USING auth_group role
    WHERE group_id = role.id AND role.name IN ('support', 'licensing', 'release', 'auditor', 'owner');
DELETE FROM auth_group WHERE name IN ('support', 'licensing', 'release', 'auditor', 'owner');
"""


class Migration(migrations.Migration):
    replaces = [
        ("accounts", "0001_initial"),
        ("accounts", "0002_audit_is_append_only"),
        ("accounts", "0003_refresh_retry_box"),
        ("accounts", "0004_password_links"),
        ("accounts", "0005_audit_is_not_emptied"),
        ("accounts", "0006_audit_is_searched"),
        ("accounts", "0007_people_are_invited_and_erased"),
        ("accounts", "0008_erased_people_are_nobody"),
        ("accounts", "0009_sessions_know_from_where"),
        ("accounts", "0010_a_chain_has_one_last_token"),
        ("accounts", "0011_connections"),
        ("accounts", "0012_one_time_passwords"),
        ("accounts", "0013_one_time_passwords_validated"),
        ("accounts", "0014_large_tables"),
        ("accounts", "0015_a_box_goes_with_its_token"),
        ("accounts", "0016_session_expiry_is_readable"),
        ("accounts", "0017_token_expiry_is_readable"),
        ("accounts", "0018_expiries_validated"),
        ("accounts", "0019_a_chain_is_deleted_as_a_whole"),
        ("accounts", "0020_clients_name_an_alert_email"),
        ("accounts", "0021_audit_is_pruned_by_a_function"),
        ("accounts", "0022_operators_have_roles"),
        ("accounts", "0023_operators_belong_to_no_client"),
        ("accounts", "0024_operators_are_few"),
        ("accounts", "0025_audit_is_forwarded"),
        ("accounts", "0026_second_factors"),
    ]
    initial = True
    dependencies = [("auth", "0012_alter_user_first_name_max_length")]

    operations = [
        migrations.CreateModel("Client", list(CLIENT.items()), {"ordering": ("name", "id")}),
        migrations.CreateModel("AuditEvent", list(AUDIT_EVENT.items()), AUDIT_EVENT_OPTIONS),
        migrations.CreateModel("User", list(USER.items()), USER_OPTIONS),
        migrations.CreateModel("Session", list(SESSION.items()), SESSION_OPTIONS),
        migrations.CreateModel("RefreshToken", list(REFRESH_TOKEN.items()), REFRESH_TOKEN_OPTIONS),
        migrations.CreateModel("SigningKey", list(SIGNING_KEY.items()), SIGNING_KEY_OPTIONS),
        migrations.CreateModel("PasswordLink", list(PASSWORD_LINK.items()), PASSWORD_LINK_OPTIONS),
        migrations.CreateModel("Connection", list(CONNECTION.items()), CONNECTION_OPTIONS),
        migrations.CreateModel(
            "ConnectionAttempt", list(CONNECTION_ATTEMPT.items()), CONNECTION_ATTEMPT_OPTIONS
        ),
        migrations.CreateModel(
            "ConnectionRevocation",
            list(CONNECTION_REVOCATION.items()),
            CONNECTION_REVOCATION_OPTIONS,
        ),
        migrations.CreateModel(
            "Operator", [], {"ordering": ("email",), "proxy": True}, bases=("accounts.user",)
        ),
        migrations.CreateModel(
            "AuditPosition", list(AUDIT_POSITION.items()), AUDIT_POSITION_OPTIONS
        ),
        migrations.CreateModel("SetUpCode", list(SET_UP_CODE.items()), {"ordering": ("user",)}),
        migrations.CreateModel("Authenticator", list(AUTHENTICATOR.items()), {"ordering": ("id",)}),
        migrations.CreateModel(
            "ConsoleSession", list(CONSOLE_SESSION.items()), {"ordering": ("-last_used_at", "id")}
        ),
        migrations.CreateModel(
            "RecoveryCodes", list(RECOVERY_CODES.items()), RECOVERY_CODES_OPTIONS
        ),
        migrations.RunSQL([APPEND_ONLY, EMPTY_BOXES, OPERATORS], UNGUARD),
        migrations.RunSQL(TEND, migrations.RunSQL.noop),
        migrations.RunSQL(PRUNE, UNPRUNE),
        migrations.RunSQL(ONLY_PRUNED, migrations.RunSQL.noop),
        migrations.RunSQL(ROLES, NO_ROLES),
    ]
