"""The mails about usage: the person, the numbers, the consequence and its end, and the page to change it.

Their templates begin with the subject and end with the label of the button.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from django.conf import settings
from django.template.loader import render_to_string
from django.urls import reverse

from accounts.models import Client, User
from config.platform.jobs.letters import letter
from config.platform.jobs.mail import queue_for_operators, queue_for_person
from config.platform.money import readable_dollars
from config.platform.periods import Period
from usage.models import Alert, Budget

# A mail names so many people at most; the console lists all of them.
PEOPLE_NAMED = 50
# The alerts of a used-up monthly cap, with its dimension.
USED_UP: Mapping[str, str] = {Alert.Kind.INPUT_ALL: "input", Alert.Kind.OUTPUT_ALL: "output"}
# Other kinds have a template of their own.
_TEMPLATES: Mapping[str, str] = {
    Alert.Kind.INPUT: "share",
    Alert.Kind.OUTPUT: "share",
    Alert.Kind.INPUT_ALL: "used_up",
    Alert.Kind.OUTPUT_ALL: "used_up",
}


def alert(alert: Alert) -> None:
    """Queues the mail of an alert about one person."""
    user = alert.user
    assert user is not None
    page = path = reverse("admin:accounts_user_change", args=[user.pk])
    if alert.record_id is not None:
        path = reverse("admin:usage_usagerecord_change", args=[alert.record_id])
    _queue_for_operators(
        _TEMPLATES.get(alert.kind, alert.kind),
        path=path,
        page=f"{settings.BASE_URL}{page}",
        alert=alert,
        person=_name_of(user),
        dimension=USED_UP.get(alert.kind, alert.kind),
        percent=100 * alert.used // alert.cap if alert.cap else 100,
        period=Period(month=alert.period.replace(day=1), day=alert.period),
        more=f"{settings.BASE_URL}{reverse('admin:usage_override_add')}?user={user.pk}",
    )


def alerts(alerts: Sequence[Alert]) -> None:
    """Queues one mail about many people."""
    lines = [
        f"- {_name_of(each.user)}: {_numbers(each)}"
        for each in alerts[:PEOPLE_NAMED]
        if each.user is not None
    ]
    if (unnamed := len(alerts) - PEOPLE_NAMED) > 0:
        lines.append(f"and {unnamed} more.")
    path = reverse("admin:usage_alert_changelist")
    _queue_for_operators("many", path=path, number=len(alerts), lines=lines)


def used_up(client: Client, alerts: Sequence[Alert]) -> None:
    """Queues the mail to a client's administrators that people of theirs have used up a monthly cap."""
    lines = [f"- {each.user.email}: {_numbers(each)}" for each in alerts if each.user is not None]
    end = Period(month=alerts[0].period, day=alerts[0].period).next_month
    values = {"client": client, "number": len(alerts), "lines": lines, "end": end}
    mail = render_to_string("usage/mail/client_used_up.txt", values)
    queue_for_person(to=client.alert_email, mail=letter(mail))


def percentile(alert: Alert, *, people: int) -> None:
    """Queues the mail that many people are near their caps."""
    path = f"{reverse('admin:usage_monthlyusage_changelist')}?month={alert.period:%Y-%m}"
    end = Period(month=alert.period, day=alert.period).next_month
    _queue_for_operators("percentile", path=path, alert=alert, people=people, end=end)


def budget(budget: Budget, *, percent: int) -> None:
    """Queues the mail that a client has spent 80 % of its monthly budget, or all of it."""
    assert budget.period is not None
    _queue_for_operators(
        "budget",
        path=reverse("admin:accounts_client_change", args=[budget.client_id]),
        budget=budget,
        spent=readable_dollars(budget.spent),
        monthly=readable_dollars(budget.monthly),
        percent=percent,
        is_over=budget.spent >= budget.monthly,
        end=Period(month=budget.period, day=budget.period).next_month,
    )


def _queue_for_operators(template: str, *, path: str, **values: Any) -> None:
    mail = render_to_string(f"usage/mail/{template}.txt", dict(values))
    subject, _, rest = mail.strip().partition("\n\n")
    text, _, label = rest.rpartition("\n\n")
    queue_for_operators(subject=subject, text=text, path=path, label=label)


def _name_of(user: User) -> str:
    return f"{user.email} ({user.client})" if user.client else user.email


def _numbers(alert: Alert) -> str:
    day = f"on {alert.period:%-d %B}"
    if alert.kind == Alert.Kind.ABANDONED:
        return f"{alert.used:,} calls abandoned within an hour {day}"
    if alert.kind == Alert.Kind.UNREAD:
        return f"{alert.used:,} answers that could not be read within an hour {day}"
    if alert.kind == Alert.Kind.REPORT:
        return f"{alert.used:,} tokens reported, {alert.cap:,} plausible, for a call {day}"
    if alert.kind == Alert.Kind.DAY:
        return f"{alert.used:,} of {alert.cap:,} tokens {day}"
    kind = USED_UP.get(alert.kind, alert.kind)
    return f"{alert.used:,} of {alert.cap:,} {kind} tokens in {alert.period:%B}"
