"""Caps under estimates that are wrong: a cap is passed by at most the error of the calls that then run."""

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from functools import partial
from itertools import cycle, islice

import pytest

from accounts.models import Session, User
from accounts.sessions.sign_in import TokenPair
from config.platform.problems.problem import Problem
from licensing.callers import Caller, load_caller
from licensing.models import Plan
from llmproxy.calls.call import Call, End
from llmproxy.catalogue.choosing import choose
from llmproxy.dialects.protocol import TokenUsage
from llmproxy.models import LanguageModel, Provider, Route
from llmproxy.requests.call_request import Surface
from llmproxy.requests.chat import parse
from tests.llmproxy.calling import admit, asking
from tests.llmproxy.corpus import KINDS, text_of
from tests.races import race
from usage.models import MonthlyUsage, UsageRecord

pytestmark = pytest.mark.django_db(transaction=True)

CAP = 60_000
AT_ONCE = 8


@pytest.fixture
def caller(plan: Plan, pair: TokenPair, user: User) -> Caller:
    Plan.objects.update(monthly_input_tokens=CAP, monthly_output_tokens=None, daily_tokens=None)
    model = LanguageModel.objects.create(name="grand", provider_name="grand")
    provider, _ = Provider.objects.get_or_create(name=Provider.DEFAULT)
    Route.objects.create(
        model=model, provider=provider, provider_name="grand", token_factor=Decimal("1.2")
    )
    caller = load_caller(user_id=user.pk, session_id=Session.objects.get().pk)
    assert caller is not None
    return caller


def asked(caller: Caller, now: datetime, text: str) -> Call:
    members = {"model": "grand", "messages": [{"role": "user", "content": text}]}
    return admit(caller=caller, request=parse(members, stream=False), request_id="", now=now)


def finished(call: Call, ratio: float) -> None:
    """The whole answer of a provider that counts the prompt as ``ratio`` of what this service counts."""
    counted = UsageRecord.objects.get(pk=call.id).counted_input
    assert counted is not None
    asking(call).report = TokenUsage(input=round(counted * ratio), output=1)
    assert call.settle(End.DONE).is_set()


def used(user: User) -> int:
    return MonthlyUsage.objects.get(user=user).input_used


# Above the factor, below it, and mixed.
@pytest.mark.parametrize("ratios", [(1.9,), (0.8,), (0.7, 1.9, 1.2, 1.5)], ids=str)
def test_a_cap_is_passed_by_at_most_the_error_of_the_calls_that_run(
    caller: Caller, user: User, now: datetime, ratios: Sequence[float]
) -> None:
    assert choose("grand", surface=Surface.CHAT, caller=caller).targets[
        0
    ].measure.factor == Decimal("1.2")
    kinds, errors = cycle(KINDS), cycle(ratios)
    longest = 0
    for _ in range(100):
        texts = [text_of(kind, characters=4_000) for kind in islice(kinds, AT_ONCE)]
        before = used(user) if MonthlyUsage.objects.exists() else 0
        results = race(*(partial(asked, caller, now, text) for text in texts))
        running = [each for each in results if isinstance(each, Call)]
        refused = [each for each in results if not isinstance(each, Call)]
        assert all(isinstance(each, Problem) for each in refused), refused
        if not running:
            break
        estimates = sum(call.admission.estimate.tokens for call in running)
        longest = max(longest, *(call.admission.estimate.tokens for call in running))
        # The calls were admitted within the cap by their estimates, whatever they turn out to cost.
        assert before + estimates <= CAP
        race(
            *(partial(finished, call, ratio) for call, ratio in zip(running, errors, strict=False))
        )
        error = used(user) - before - estimates
        assert used(user) <= CAP + max(0, error)
    else:
        pytest.fail("the cap was never felt")
    # It is felt when it is reached, and not a call before.
    assert used(user) > CAP - longest
