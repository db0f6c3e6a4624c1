"""Charges of calls: pure functions of the admission, the last attempt and the answer so far.

docs/charges.csv gives the rules by example, and is the table of their tests.
"""

import time
from datetime import datetime

from django.conf import settings

from llmproxy.calls.admission import Admission
from llmproxy.calls.attempt import Attempt
from llmproxy.calls.meter import SILENCE_SECONDS, Meter, State
from llmproxy.dialects.protocol import PromptUsage
from usage.costs import Abandoned, Spent
from usage.models import UsageRecord
from usage.settlement import Excess

End = UsageRecord.End
Source = UsageRecord.Source
# Ends that this side decided: until then the provider may have made output that nobody saw.
CUT = frozenset({End.CLIENT_GONE, End.STOPPED, End.TIMEOUT, End.CRASHED})
# The share of the wait before the first delta in which a model that is not known to think may have made output.
WAIT_SHARE = 0.1
# A reported prompt below this share of an exact count leaves something out.
LEAST_SHARE = 0.25
# The same share of an inexact estimate.
LEAST_INEXACT = 0.1
# A report is implausible beyond so many times the estimate and a thousand tokens (templates, hidden prompts), or so
# many times the output limit.
INPUT_TIMES = 4
INPUT_SLACK = 1_000
OUTPUT_TIMES = 2


def charge(
    admission: Admission, meter: Meter, attempt: Attempt, end: End, now: float | None
) -> tuple[Spent, Source]:
    """The tokens charged, and how they are known.

    ``now`` is on the monotonic clock; None leaves out what may have been made unseen.
    """
    if meter.report is None and not _may_have_worked(meter, attempt, end):
        return Spent(), Source.COUNTED
    is_believed = _is_believed(admission, meter, end)
    reported = _reported_prompt(meter, attempt)
    known = reported or PromptUsage(admission.estimate.tokens)
    output = _output(admission, meter, attempt, end, now, is_believed=is_believed)
    reasoning = meter.report.reasoning if meter.report else 0
    spent = _possible(admission, known, output=output, reasoning=reasoning)
    if is_believed and reported and meter.report and output <= meter.report.output:
        return spent, Source.PROVIDER
    is_counted = not meter.is_unread and (
        meter.report is not None or meter.prompt is not None or meter.size > 0
    )
    return spent, Source.COUNTED if is_counted else Source.ESTIMATED


def excess(admission: Admission, meter: Meter) -> Excess | None:
    """The tokens of an implausible report."""
    report = meter.report
    most_input = INPUT_TIMES * admission.estimate.tokens + INPUT_SLACK
    most_output = OUTPUT_TIMES * admission.reservation.output_limit
    if report is None or (report.input <= most_input and report.output <= most_output):
        return None
    return Excess(report.input + report.output, most_input + most_output)


def unseen_output(admission: Admission, meter: Meter, attempt: Attempt, now: float) -> int:
    """The tokens that the provider may have made unseen, at most those reserved.

    Of the wait before the first delta all where the model is known to think, its request turns thinking on or the
    answer comes in one piece, else a tenth; of each silence after it what exceeds the burst that ended it.
    """
    if (sent_at := attempt.sent_at()) is None:
        return 0
    rate = settings.LLM_UNSEEN_TOKENS_PER_SECOND
    first = now if meter.first_delta_at is None else meter.first_delta_at
    works = not admission.request.stream or attempt.target.thinks or admission.request.thinks
    tokens = (first - sent_at) * rate * (1 if works else WAIT_SHARE)
    tokens += sum(max(0, each.seconds * rate - each.burst) for each in meter.silences)
    if meter.delta_at is not None:
        tokens += (now - meter.delta_at) * rate
    return min(int(tokens), admission.reservation.output_limit)


def _unseen_since_report(
    admission: Admission, meter: Meter, attempt: Attempt, end: End, now: float
) -> int:
    """The tokens that the provider may have made unseen after a report of a part of its answer, which is cut."""
    is_part = admission.request.stream and end in CUT and not meter.is_finished
    if not is_part or meter.reported_at is None or now - meter.reported_at < SILENCE_SECONDS:
        return 0
    works = attempt.target.thinks or admission.request.thinks or meter.first_delta_at is not None
    rate = settings.LLM_UNSEEN_TOKENS_PER_SECOND * (1 if works else WAIT_SHARE)
    return int((now - meter.reported_at) * rate)


def abandoned(admission: Admission, attempt: Attempt, *, now: datetime) -> Abandoned | None:
    """Returns what the provider may bill for a failed attempt: its report, else the prompt and likely output."""
    report, target = attempt.meter.report or attempt.failure_report, attempt.target
    prompt = attempt.meter.prompt
    if report is not None:
        prompt = PromptUsage(report.input, report.cached_input, report.cache_write)
        output = min(report.output, admission.context_length)
    elif attempt.sent_at() is not None and attempt.meter.state is not State.ENDED:
        output = unseen_output(admission, attempt.meter, attempt, time.monotonic())
    elif prompt is not None:
        output = 0
    else:
        return None
    if attempt.meter.is_unread and not attempt.meter.is_reported:
        output = max(output, admission.reservation.output_limit)
    known = prompt or PromptUsage(admission.estimate.tokens)
    spent = _possible(admission, known, output=output)
    return Abandoned(
        target.provider, target.prices, spent, report is not None, attempt.asked_at, now
    )


def _possible(
    admission: Admission, prompt: PromptUsage, *, output: int, reasoning: int = 0
) -> Spent:
    """Tokens that fit the context and each other, whatever the provider reports."""
    given = min(prompt.input, admission.context_length)
    cached = min(prompt.cached_input, given)
    return Spent(
        input=given,
        cached_input=cached,
        cache_write=min(prompt.cache_write, given - cached),
        output=output,
        reasoning=min(reasoning, output),
    )


def _may_have_worked(meter: Meter, attempt: Attempt, end: End) -> bool:
    """Returns whether the provider may bill a call without a report: not if never reached, or refused at once."""
    was_asked = meter.state is State.ASKING and attempt.sent_at() is not None
    return meter.has_begun or (was_asked and end in CUT)


def _is_believed(admission: Admission, meter: Meter, end: End) -> bool:
    """Returns whether a report is of all output, and not below what was delivered."""
    if meter.report is None or not meter.is_reported:
        return False
    # A stream may begin with an empty report.
    is_last = not admission.request.stream or meter.is_finished or end == End.DONE
    return (is_last or meter.report.output > 0) and meter.report.output >= meter.least_delivered


def _reported_prompt(meter: Meter, attempt: Attempt) -> PromptUsage | None:
    """The prompt as the provider reports it, where that is possible: no prompt is empty."""
    report = meter.report
    if report is None or not report.input:
        found = meter.prompt
    else:
        found = PromptUsage(report.input, report.cached_input, report.cache_write)
    estimate = attempt.estimate
    least = LEAST_SHARE * estimate.exact if estimate.exact else LEAST_INEXACT * estimate.tokens
    if not found or not found.input or found.input + found.cached_input < least:
        return None
    return found


def _output(
    admission: Admission,
    meter: Meter,
    attempt: Attempt,
    end: End,
    now: float | None,
    *,
    is_believed: bool,
) -> int:
    limit, reported = admission.reservation.output_limit, meter.report.output if meter.report else 0
    output = max(min(reported, admission.context_length), meter.least_delivered)
    if is_believed:
        since = 0 if now is None else _unseen_since_report(admission, meter, attempt, end, now)
        return max(output, min(output + since, limit))
    output = max(output, meter.delivered)
    if meter.is_unread:
        return max(output, limit)
    if end not in CUT or meter.is_finished:
        return output
    if end == End.CLIENT_GONE and not admission.request.stream:
        # Beyond those that are read on for a person.
        return max(output, limit)
    unseen = 0 if now is None else unseen_output(admission, meter, attempt, now)
    return max(output, min(output + unseen, limit))
