"""The mails about usage: the person, the numbers, the consequence and its end, and the page to change it."""

from collections.abc import Mapping, Sequence

from django.conf import settings
from django.urls import reverse

from accounts.models import Client, User
from config.jobs.mail import queue_for_operators, queue_for_person
from config.money import shown
from usage.models import Alert, Budget
from usage.periods import Period

# A mail names so many people at most; the console lists all of them.
PEOPLE_NAMED = 50
# The alerts of a used-up monthly cap, with its dimension.
USED_UP: Mapping[str, str] = {Alert.Kind.INPUT_ALL: "input", Alert.Kind.OUTPUT_ALL: "output"}


def alert(alert: Alert) -> None:
    """Queues the mail of an alert about one person."""
    user = alert.user
    assert user is not None
    if alert.kind in {Alert.Kind.ABANDONED, Alert.Kind.REPORT}:
        _unusual(alert, user)
        return
    period = Period(month=alert.period.replace(day=1), day=alert.period)
    percent = 100 * alert.used // alert.cap if alert.cap else 100
    if alert.kind == Alert.Kind.DAY:
        subject = f"{user.email} has reached the daily limit"
        text = (
            f"{_who(user)} was refused a model call: {alert.used:,} of {alert.cap:,} tokens of {alert.period} "
            "(UTC) are used, and not even a small call fits into the rest.\n\n"
            "Model calls are refused (daily_limit_reached), except the very smallest, until "
            f"{period.next_day:%Y-%m-%d %H:%M} UTC. The limit exists to stop runaway clients: look at their calls "
            "before you raise it."
        )
    elif alert.kind in USED_UP:
        kind, end = USED_UP[alert.kind], f"{period.next_month:%Y-%m-%d %H:%M} UTC"
        subject = f"{user.email} has used up this month's {kind} tokens"
        text = (
            f"{_who(user)} has used {alert.used:,} of {alert.cap:,} {kind} tokens of {alert.period:%Y-%m}, and no "
            f"call fits into the rest.\n\nModel calls are refused (monthly_cap_exceeded) until {end}. There is no "
            "further mail about this cap this month."
        )
    else:
        subject = f"{user.email} has used {percent} % of this month's {alert.kind} tokens"
        text = (
            f"{_who(user)} has used {alert.used:,} of {alert.cap:,} {alert.kind} tokens of {alert.period:%Y-%m}, "
            f"which is {percent} %.\n\n"
            "Nothing is refused yet. Once the cap is reached, model calls are refused (monthly_cap_exceeded) "
            f"until {period.next_month:%Y-%m-%d %H:%M} UTC, and one more mail says so."
        )
    more = f"{settings.BASE_URL}{reverse('admin:usage_override_add')}?user={user.pk}"
    queue_for_operators(
        subject=subject,
        text=f"{text}\n\nTo allow more until a date:\n{more}\n\nTheir page, where calls can be stopped too:",
        path=reverse("admin:accounts_user_change", args=[user.pk]),
    )


def _unusual(alert: Alert, user: User) -> None:
    """Queues the mail about a person's unusual calls."""
    if alert.kind == Alert.Kind.ABANDONED:
        subject = f"{user.email} hangs up on many model calls"
        text = (
            f"{_who(user)} has hung up on {alert.used:,} model calls within an hour, more than {alert.cap:,}.\n\n"
            "Nothing is refused, and abandoned calls are charged. The client may give up too soon, or someone may be "
            "looking for free answers: look at their calls. There is no further mail about this person's abandoned "
            f"calls of {alert.period} (UTC)."
        )
    else:
        subject = f"The provider reported too many tokens for a call of {user.email}"
        text = (
            f"The provider reported {alert.used:,} tokens for a model call of {_who(user)}. Its prompt and limit "
            f"explain {alert.cap:,} at most. The report is charged as far as the model's context allows.\n\n"
            "Compare the provider's invoice with the ledger, where the call is marked. There is no further mail about "
            f"reports for this person's calls of {alert.period} (UTC)."
        )
    queue_for_operators(
        subject=subject,
        text=f"{text}\n\nTheir page, where calls can be stopped too:",
        path=reverse("admin:accounts_user_change", args=[user.pk]),
    )


def alerts(alerts: Sequence[Alert]) -> None:
    """Queues one mail about many people."""
    lines = [
        f"- {_who(each.user)}: {_numbers(each)} {each.period}"
        for each in alerts[:PEOPLE_NAMED]
        if each.user is not None
    ]
    if (unnamed := len(alerts) - PEOPLE_NAMED) > 0:
        lines.append(f"and {unnamed} more.")
    queue_for_operators(
        subject=f"{len(alerts)} people are near or at a limit of model tokens",
        text=(
            "These people have used 80 % or all of a monthly cap, or reached their daily limit, or have unusual calls. "
            "Once a cap or limit is reached, model calls are refused until the next month or day (UTC).\n\n"
            + "\n".join(lines)
            + "\n\nAll alerts, each with the person it is about:"
        ),
        path=reverse("admin:usage_alert_changelist"),
    )


def used_up(client: Client, alerts: Sequence[Alert]) -> None:
    """Queues the mail to a client's administrators that people of theirs have used up a monthly cap."""
    first = alerts[0]
    end = Period(month=first.period, day=first.period).next_month
    whose = (
        f"{len(alerts)} caps of people of {client} are" if alerts[1:] else f"A cap of {client} is"
    )
    lines = [
        f"- {each.user.email}: {_numbers(each)} {each.period:%Y-%m}"
        for each in alerts
        if each.user is not None
    ]
    queue_for_person(
        to=client.alert_email,
        subject=f"{whose} used up",
        text=(
            "These people have used up their model tokens of the month:\n\n"
            + "\n".join(lines)
            + f"\n\nTheir model calls are refused until {end:%Y-%m-%d %H:%M} UTC. Whoever runs this service for you "
            f"can allow more.\n\nYou receive this mail because {client} named this address.\n"
        ),
        html="",
    )


def percentile(alert: Alert, *, people: int) -> None:
    """Queues the mail that many people are near their caps."""
    period = Period(month=alert.period, day=alert.period)
    queue_for_operators(
        subject=f"The 95th percentile of monthly usage is {alert.used} % of the cap",
        text=(
            f"Of the {people:,} people who have a cap and have used models in {alert.period:%Y-%m}, one in twenty "
            f"has used {alert.used} % of it or more.\n\n"
            "Each person's model calls are refused once they reach it, until "
            f"{period.next_month:%Y-%m-%d %H:%M} UTC. If that is not intended, the plan's caps are too small. There "
            "is no further mail about this in this month.\n\n"
            "The usage of all people this month:"
        ),
        path=f"{reverse('admin:usage_monthlyusage_changelist')}?month={alert.period:%Y-%m}",
    )


def budget(budget: Budget, *, percent: int) -> None:
    """Queues the mail that a client has spent 80 % of its monthly budget, or all of it."""
    assert budget.period is not None
    end = Period(month=budget.period, day=budget.period).next_month
    is_over = budget.spent >= budget.monthly
    consequence = (
        f"Its people's model calls are refused (budget_exceeded) until {end:%Y-%m-%d %H:%M} UTC. Running calls end as "
        "usual and are charged. A raised budget lets calls pass at once."
        if is_over
        else "Nothing is refused yet. Within a minute of the budget's end, model calls are refused (budget_exceeded) "
        f"until {end:%Y-%m-%d %H:%M} UTC."
    )
    queue_for_operators(
        subject=f"{budget.client} has spent {'all' if is_over else f'{percent} %'} of this month's budget",
        text=(
            f"{budget.client} has spent {shown(budget.spent)} of {shown(budget.monthly)} in "
            f"{budget.period:%Y-%m}, which is {percent} %.\n\n{consequence}\n\n"
            "Its page, where the budget can be changed:"
        ),
        path=reverse("admin:accounts_client_change", args=[budget.client_id]),
    )


def _who(user: User | None) -> str:
    assert user is not None
    return f"{user.email} ({user.client})" if user.client else user.email


def _numbers(alert: Alert) -> str:
    if alert.kind == Alert.Kind.ABANDONED:
        return f"{alert.used:,} calls abandoned within an hour of"
    if alert.kind == Alert.Kind.REPORT:
        return f"{alert.used:,} tokens reported, {alert.cap:,} plausible, for a call of"
    kind = USED_UP.get(alert.kind, alert.kind)
    limit = "limit of" if alert.kind == Alert.Kind.DAY else f"{kind} of the month of"
    return f"{alert.used:,} of {alert.cap:,} tokens, {limit}"
