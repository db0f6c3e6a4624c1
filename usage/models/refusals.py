"""The refusals of the last two weeks."""

from uuid import UUID

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.indexes import GinIndex
from django.db import models
from django.db.models import Q

from config.platform.problems.problem import titles

# The request ids that a row keeps.
MOST_IDS = 20


class RefusalQuerySet(models.QuerySet["Refusal"]):
    def codes(self) -> list[str]:
        """The codes that occur, in order: a look-up by index for each, because DISTINCT would read the whole table."""
        values = self.order_by("code").values_list("code", flat=True)
        found: list[str] = []
        code = values.first()
        while code is not None:
            found.append(code)
            code = values.filter(code__gt=code).first()
        return found


class Refusal(models.Model):
    """The refusals of one minute with one code, to a person or, before there is one, to a network; without content."""

    id = models.BigAutoField(primary_key=True)
    minute = models.DateTimeField()
    # Its index is the one that the unique constraint makes.
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        null=True,
        on_delete=models.CASCADE,
        related_name="refusals",
        db_index=False,
        verbose_name="person",
    )
    client_id = models.UUIDField(null=True, help_text="The client of the person at the time.")
    address = models.GenericIPAddressField(
        null=True, help_text="Of a request without a person; of IPv6 the network."
    )
    code = models.CharField(max_length=40)
    status = models.PositiveSmallIntegerField()
    route = models.CharField(max_length=80, blank=True, help_text="Of the latest request.")
    model = models.CharField(max_length=120, blank=True)
    number = models.PositiveIntegerField(default=1)
    last_at = models.DateTimeField()
    request_ids = ArrayField(models.CharField(max_length=64), default=list)
    numbers = models.JSONField(
        default=dict, help_text="Of the latest request: what was asked for and what was left."
    )

    user_id: UUID | None

    objects = RefusalQuerySet.as_manager()

    class Meta:
        ordering = ("-minute", "-id")
        constraints = (
            models.UniqueConstraint(
                fields=("user", "minute", "code", "model", "address"),
                nulls_distinct=False,
                name="one_refusal_of_a_kind_a_minute",
            ),
            models.CheckConstraint(
                condition=Q(user=None) | Q(address=None), name="refusal_is_of_a_person_or_network"
            ),
            models.CheckConstraint(
                condition=Q(number__gt=0, request_ids__len__lte=MOST_IDS),
                name="refusal_keeps_few_request_ids",
            ),
        )
        indexes = (
            models.Index(fields=("-minute", "-id"), name="refusals_newest_first"),
            models.Index(fields=("client_id", "-minute"), name="refusals_by_client"),
            models.Index(fields=("code", "-minute"), name="refusals_by_code"),
            GinIndex(fields=("request_ids",), name="refusals_by_request"),
        )

    def __str__(self) -> str:
        return f"{self.status} {self.code}"

    @property
    def reason(self) -> str:
        return titles().get(self.code, self.code)
