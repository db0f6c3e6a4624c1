"""Constraints of the usage tables, whoever writes to them, and reads of the ledger."""

import pytest
from django.db import IntegrityError, connection, models, transaction

from accounts.models import User
from tests.usage.test_caps import NOON, ROOMY, ask, done
from usage.models import MonthlyUsage, RunningCall, UsageRecord


def _numbers(model: type[models.Model]) -> list[str]:
    """The columns that hold tokens, which are all numbers but the key."""
    return [
        field.name
        for field in model._meta.fields
        if isinstance(field, models.BigIntegerField) and not field.primary_key
    ]


@pytest.mark.django_db
class TestNumbers:
    @pytest.mark.parametrize(
        ("model", "constraint"),
        [
            (UsageRecord, "usage_tokens_not_below_zero"),
            (MonthlyUsage, "usage_totals_not_below_zero"),
        ],
    )
    def test_none_is_ever_below_zero(
        self, user: User, model: type[models.Model], constraint: str
    ) -> None:
        call = ask(user, ROOMY)
        UsageRecord.objects.update(checkpoint_at=NOON, checkpoint_input=1, checkpoint_output=1)
        names = _numbers(model)
        assert len(names) > 7
        for name in names:
            with pytest.raises(IntegrityError, match=constraint), transaction.atomic():
                model._default_manager.update(**{name: -1})
            model._default_manager.update(**{name: 0})
        assert UsageRecord.objects.get().pk == call.record_id

    def test_an_empty_column_counts_for_nothing(self, user: User) -> None:
        done(ask(user, ROOMY), prompt=1, output=2)
        MonthlyUsage.objects.update(input_cap=None, output_cap=None)
        assert UsageRecord.objects.filter(checkpoint_input=None, input_tokens=1).exists()


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("rows", "index"),
    [
        (UsageRecord.objects.abandoned(at=NOON), "usage_open_by_expiry"),
        (RunningCall.objects.filter(expires_at__gt=NOON), "usage_open_by_expiry"),
        (UsageRecord.objects.left().filter(period=NOON.date()), "usage_left_by_month"),
    ],
)
def test_a_prepared_query_of_few_calls_reads_their_index_and_not_the_ledger(
    rows: models.QuerySet[UsageRecord], index: str
) -> None:
    query, values = rows.order_by().query.sql_with_params()
    for place in range(len(values)):
        query = query.replace("%s", f"${place + 1}", 1)
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off")
        cursor.execute(f"EXPLAIN (GENERIC_PLAN) {query}")
        plan = "\n".join(line for (line,) in cursor.fetchall())
    assert f" {index} " in plan, plan
