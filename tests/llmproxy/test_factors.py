"""Factors of prompt estimates: learned from the ledger, or set by an operator."""

from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.core.management import call_command

from accounts.audit import Actor
from accounts.models import AuditEvent, User
from config.platform.periods import Period
from config.platform.problems.problem import InvalidRequest
from llmproxy.catalogue.factors import Learned, bounded, free_factor, learn, set_factor
from llmproxy.catalogue.offering import ModelTerms, change_model
from llmproxy.models import LanguageModel, Provider, Route
from usage.models import UsageRecord

pytestmark = pytest.mark.django_db


@pytest.fixture
def route() -> Route:
    model = LanguageModel.objects.create(name="grand", provider_name="grand-2026")
    return Route.objects.create(
        model=model, provider=Provider.objects.get(name="default"), provider_name="grand-2026"
    )


def reported(user: User, now: datetime, ratios: list[float], **changes: Any) -> None:
    """A whole answer for each ratio of what the provider reported over what was counted."""
    period = Period.of(now)
    fields = {
        "user": user, "client_id": user.client_id, "period": period.month, "day": period.day, "model": "grand",
        "provider": "openai", "streamed": False, "state": "settled", "reserved_input": 0, "reserved_output": 0,
        "counted_input": 1000, "source": "provider", "end": "done", "opened_at": now - timedelta(days=1),
        "expires_at": now, "settled_at": now, **changes,
    }  # fmt: skip
    UsageRecord.objects.bulk_create(
        UsageRecord(**fields, input_tokens=round(fields["counted_input"] * ratio))
        for ratio in ratios
    )


def test_a_factor_becomes_the_99th_percentile_of_what_was_reported(
    route: Route, user: User, by: Actor, now: datetime
) -> None:
    reported(user, now, [1 + each / 1000 for each in range(201)])
    assert learn(by=by, now=now, dry_run=True) == Learned(routes=1, changed=1)
    assert not AuditEvent.objects.filter(action="route:factor_learned").exists()
    assert learn(by=by, now=now) == Learned(routes=1, changed=1)
    route.refresh_from_db()
    assert (route.token_factor, route.factor_is_set) == (Decimal("1.198"), False)
    event = AuditEvent.objects.get(action="route:factor_learned")
    assert (event.before, event.after) == (
        {"factor": "1.350", "set": False},
        {"factor": "1.198", "set": False},
    )
    # The same again changes nothing.
    assert learn(by=by, now=now) == Learned(routes=1, changed=0)
    assert AuditEvent.objects.filter(action="route:factor_learned").count() == 1


@pytest.mark.parametrize(
    ("ratio", "factor"), [(0.3, "1"), (1.2, "1.2"), (1.2341, "1.235"), (3.9, "2")]
)
def test_a_factor_is_rounded_up_and_bounded(ratio: float, factor: str) -> None:
    # A binary fraction may lie just above the decimal one.
    assert Decimal(factor) <= bounded(ratio) <= Decimal(factor) + Decimal("0.001")
    assert 1 <= bounded(ratio) <= 2


def test_few_reports_teach_nothing(route: Route, user: User, by: Actor, now: datetime) -> None:
    reported(user, now, [1.1] * 49)
    assert learn(by=by, now=now) == Learned(routes=1, changed=0)
    reported(user, now, [1.1])
    assert learn(by=by, now=now) == Learned(routes=1, changed=1)


@pytest.mark.parametrize(
    "changes",
    [
        {"source": "counted"},
        {"end": "client_gone"},
        {"counted_input": 49},
        {"model": "other"},
        {"opened_at": datetime.fromisoformat("2020-01-01T00:00:00Z")},
    ],
    ids=str,
)
def test_only_recent_whole_answers_of_some_length_teach(
    route: Route, user: User, by: Actor, now: datetime, changes: dict[str, Any]
) -> None:
    reported(user, now, [1.9] * 60, **changes)
    assert learn(by=by, now=now).changed == 0
    reported(user, now, [1.1] * 60)
    learn(by=by, now=now)
    route.refresh_from_db()
    assert route.token_factor <= Decimal("1.101")


def test_reports_on_what_the_model_was_before_teach_nothing(
    route: Route, user: User, by: Actor, now: datetime
) -> None:
    """Another model of the provider, or another count, has other ratios."""
    reported(user, now, [1.9] * 60, opened_at=now - timedelta(days=2))
    reported(user, now, [1.9] * 60, opened_at=now - timedelta(days=2), model="other")
    other = LanguageModel.objects.create(name="other", provider_name="other")
    Route.objects.create(model=other, provider=route.provider, provider_name="other")
    offer = ModelTerms(
        name="grand", provider_name="grand-2027", output_limit=99, is_on=True, plans=[]
    )
    change_model(model_id=route.model_id, terms=offer, by=by, now=now - timedelta(days=1))
    assert learn(by=by, now=now) == Learned(routes=2, changed=1)
    route.refresh_from_db()
    assert route.token_factor == Route.FIRST_FACTOR
    assert other.routes.get().token_factor == Decimal("1.9")

    reported(user, now, [1.1] * 60, opened_at=now - timedelta(hours=1))
    learn(by=by, now=now)
    route.refresh_from_db()
    assert route.token_factor <= Decimal("1.101")


def test_records_of_earlier_releases_have_no_count_and_teach_nothing(
    route: Route, user: User, by: Actor, now: datetime
) -> None:
    reported(user, now, [1.1] * 60)
    UsageRecord.objects.update(counted_input=None)
    assert learn(by=by, now=now).changed == 0


def test_a_factor_that_an_operator_has_set_stays_until_it_is_freed(
    route: Route, user: User, by: Actor, now: datetime
) -> None:
    reported(user, now, [1.1] * 60)
    set_factor(route_id=route.pk, factor=Decimal("1.5"), reason="a new model", by=by, now=now)
    assert learn(by=by, now=now) == Learned(routes=0, changed=0)
    route.refresh_from_db()
    assert (route.token_factor, route.factor_is_set) == (Decimal("1.5"), True)
    event = AuditEvent.objects.get(action="route:factor_set")
    assert (event.reason, event.after) == ("a new model", {"factor": "1.500", "set": True})
    free_factor(route_id=route.pk, reason="enough reports", by=by, now=now)
    route.refresh_from_db()
    assert (route.token_factor, route.factor_is_set) == (Decimal("1.5"), False)
    assert learn(by=by, now=now) == Learned(routes=1, changed=1)


@pytest.mark.parametrize("factor", ["0.999", "2.001"])
def test_a_factor_out_of_bounds_is_refused(
    route: Route, by: Actor, now: datetime, factor: str
) -> None:
    with pytest.raises(InvalidRequest):
        set_factor(route_id=route.pk, factor=Decimal(factor), reason="x", by=by, now=now)


def test_a_route_with_its_models_tokenizer_has_no_factor(
    route: Route, user: User, by: Actor, now: datetime
) -> None:
    Route.objects.update(tokenizer="o200k_base")
    reported(user, now, [1.9] * 60)
    assert learn(by=by, now=now) == Learned(routes=0, changed=0)
    with pytest.raises(InvalidRequest):
        set_factor(route_id=route.pk, factor=Decimal("1.5"), reason="x", by=by, now=now)


def test_the_command_says_what_it_has_learned(
    route: Route, user: User, now: datetime, capsys: pytest.CaptureFixture[str]
) -> None:
    reported(user, datetime.now(now.tzinfo), [1.1] * 60)
    call_command("learn_token_factors", "--dry-run")
    call_command("learn_token_factors")
    assert capsys.readouterr().out == (
        "learn_token_factors: 1 routes with a factor, 1 would change\n"
        "learn_token_factors: 1 routes with a factor, 1 changed\n"
    )


def test_each_route_learns_from_its_own_providers_reports(
    route: Route, user: User, by: Actor, now: datetime
) -> None:
    elsewhere = Provider.objects.create(name="elsewhere")
    other = Route.objects.create(model=route.model, provider=elsewhere, provider_name="theirs")
    silent = Provider.objects.create(name="silent")
    unheard = Route.objects.create(model=route.model, provider=silent, provider_name="theirs")
    reported(user, now, [1.1] * 50, provider="default")
    reported(user, now, [1.6] * 50, provider="elsewhere")
    assert learn(by=by, now=now) == Learned(routes=3, changed=2)
    for each, factor in ((route, "1.1"), (other, "1.6"), (unheard, "1.35")):
        each.refresh_from_db()
        assert float(each.token_factor) == pytest.approx(float(factor), abs=0.002)
