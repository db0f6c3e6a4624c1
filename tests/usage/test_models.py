"""What the tables of usage keep out whoever writes to them."""

import pytest
from django.db import IntegrityError, models, transaction

from accounts.models import User
from tests.usage.test_caps import NOON, ROOMY, ask, done
from usage.models import MonthlyUsage, UsageRecord


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
