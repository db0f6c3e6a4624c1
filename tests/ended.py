"""The ways in which somebody's access ends, as rows."""

from datetime import UTC, datetime, timedelta

from accounts.models import Session, User
from licensing.models import Licence, Standing
from usage.models import MonthlyUsage

ENDS = ("epoch", "disabled", "session", "session's time", "client-less", "licence-less", "deleted")


def end_access(how: str, user: User) -> None:
    """One of ``ENDS``, ``suspended``, or anything else, which ends nothing."""
    match how:
        case "epoch":
            User.objects.update(epoch=1)
        case "disabled":
            User.objects.update(is_active=False)
        case "session":
            Session.objects.update(ended_at=datetime.now(UTC), ended_by="logout")
        case "session's time":
            Session.objects.update(expires_at=datetime.now(UTC) - timedelta(hours=1))
        case "client-less":
            User.objects.update(client=None)
        case "licence-less":
            Licence.objects.all().delete()
        case "suspended":
            Licence.objects.update(operator_status=Standing.SUSPENDED, operator_reason="unpaid")
        case "deleted":
            # A person with usage cannot be deleted.
            MonthlyUsage.objects.filter(user=user).delete()
            user.delete()
