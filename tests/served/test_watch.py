"""The service watches its worker, and tells operators itself of one that stands still."""

from pathlib import Path

import pytest

from accounts.models import AuditEvent
from tests.served.conftest import Ground, Seeds
from tests.served.database import Database
from tests.served.service import running_service, working_off
from tests.waiting import eventually

# Nothing beyond packages is needed: it only waits for long.
pytestmark = pytest.mark.wire
# Beside the seconds for which it is no alarm.
LONG = 120.0


def alarms(database: Database) -> list[str]:
    with database.rows():
        events = AuditEvent.objects.filter(action__startswith="alarm:").order_by("id")
        return [f"{event.action} {event.target}" for event in events]


def written(folder: Path) -> list[str]:
    """The mails that are there whole: a file begins empty."""
    return [text for path in folder.iterdir() if (text := path.read_text())]


def test_a_missing_worker_is_told_once_by_all_processes_together_and_cleared_when_it_is_back(
    ground: Ground, seeds: Seeds, tmp_path: Path
) -> None:
    with seeds.copy() as database:
        environ = {
            **ground.environ,
            "DATABASE_URL": database.url,
            "EMAIL_URL": (tmp_path / "mail").as_uri(),
            "OPERATOR_EMAILS": "ops@shell.test",
        }
        with running_service(tmp_path, environ, serving="tests.served.watchful_serving") as service:
            eventually(lambda: alarms(database) == ["alarm:raised worker"], seconds=LONG)
            with working_off(service):
                eventually(lambda: alarms(database)[1:] == ["alarm:cleared worker"], seconds=LONG)
                # Before the worker is stopped, which is noticed as well.
                eventually(lambda: len(written(tmp_path / "mail")) > 1, seconds=LONG)
                mails = written(tmp_path / "mail")
    began, ended = sorted(mails, key=lambda mail: "Subject: Over: " in mail)
    assert "Subject: No worker is running" in began
    assert "Subject: Over: No worker is running" in ended
    assert f"{service.url}/admin/" in began
