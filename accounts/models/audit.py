"""The audit log: rules write it, operators read it, nobody changes it."""

from django.contrib.postgres.indexes import GinIndex, OpClass
from django.contrib.postgres.search import SearchVector
from django.db import models
from django.db.models.functions import Upper

# The words of actor, target and reason, those of an email apart. An index has them: it needs no extension.
AUDIT_WORDS = SearchVector(
    *(
        models.Func(
            models.F(name), models.Value("@._-"), models.Value("    "), function="translate",
            output_field=models.TextField(),
        )
        for name in ("actor", "target", "reason")
    ),
    config="simple",
)  # fmt: skip


class AuditEvent(models.Model):
    """One action. The event names its actor and target by value, so that it outlives both."""

    id = models.BigAutoField(primary_key=True)
    at = models.DateTimeField()
    action = models.CharField(max_length=64, help_text="subject:action")
    actor = models.CharField(
        max_length=254, blank=True, help_text="email, or the name of a command"
    )
    actor_id = models.UUIDField(null=True)
    target = models.CharField(max_length=254, blank=True, help_text="what the target is called")
    target_id = models.CharField(max_length=64, blank=True)
    address = models.GenericIPAddressField(null=True)
    request_id = models.CharField(max_length=64, blank=True)
    reason = models.TextField(blank=True)
    before = models.JSONField(null=True)
    after = models.JSONField(null=True)

    class Meta:
        ordering = ("-at", "-id")
        constraints = (
            models.CheckConstraint(
                condition=models.Q(action__regex=r"^[a-z_]+:[a-z_]+$"),
                name="audit_action_is_subject_and_verb",
            ),
        )
        indexes = (
            models.Index(fields=("-at", "-id"), name="audit_newest_first"),
            models.Index(fields=("target_id", "-at"), name="audit_by_target"),
            # For prefix searches in the console, without an extension of PostgreSQL.
            models.Index(
                fields=("action", "at"),
                opclasses=("varchar_pattern_ops", "timestamptz_ops"),
                name="audit_by_action",
            ),
            models.Index(
                OpClass(Upper("actor"), name="text_pattern_ops"), name="audit_by_actor_name"
            ),
            models.Index(
                OpClass(Upper("target"), name="text_pattern_ops"), name="audit_by_target_name"
            ),
            models.Index(
                fields=("request_id",),
                condition=~models.Q(request_id=""),
                name="audit_by_request",
            ),
            models.Index(fields=("address",), name="audit_by_address"),
            models.Index(fields=("actor_id",), name="audit_by_actor"),
            GinIndex(AUDIT_WORDS, name="audit_by_words"),
        )

    def __str__(self) -> str:
        return f"{self.action} {self.target}"


class AuditPosition(models.Model):
    """The position to which a syslog server has taken the audit log; at most one row."""

    id = models.SmallIntegerField(primary_key=True, default=1)
    event_id = models.BigIntegerField(help_text="the last event that was taken")
    at = models.DateTimeField(help_text="when it was taken")

    class Meta:
        ordering = ("id",)
        constraints = (
            models.CheckConstraint(condition=models.Q(id=1), name="audit_position_is_one"),
        )

    def __str__(self) -> str:
        return f"audit log up to {self.event_id}"
