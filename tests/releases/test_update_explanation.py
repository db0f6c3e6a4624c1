"""Explanations of updates: the trace agrees with the update address."""

from datetime import timedelta

import pytest
from django.utils import timezone

from releases.models import ShellChannel
from releases.update_explanation import explain
from tests.releases.conftest import Pipeline
from tests.releases.test_views import ask

pytestmark = pytest.mark.django_db

CASES = [
    ("stable", "darwin", "aarch64", "1.0.0", "newer than 1.0.0"),
    ("stable", "darwin", "", "", "did not send its version"),
    ("stable", "darwin", "", "1.2.3", "not newer"),
    ("stable", "darwin", "", "2.0.0", "not newer"),
    ("stable", "darwin", "", "one", "three numbers|not a SemVer"),
    ("stable", "linux", "", "1.0.0", "nothing for linux of any architecture"),
    ("stable", "darwin", "x86_64", "1.0.0", "nothing for darwin-x86_64"),
    ("beta", "darwin", "", "1.0.0", "Nothing is published to all shells of beta"),
    ("unknown", "darwin", "", "1.0.0", "Nothing is published to all shells of unknown"),
    ("beta", "darwin", "", "", "Nothing is published to all shells of beta"),
]


@pytest.mark.parametrize("halted", [False, True])
@pytest.mark.parametrize(("channel", "system", "arch", "current", "why"), CASES)
def test_the_explanation_is_what_the_update_address_answers(
    pipeline: Pipeline, channel: str, system: str, arch: str, current: str, why: str, halted: bool
) -> None:
    pipeline.publish(pipeline.release("1.2.3"))
    ShellChannel.objects.create(name="beta")
    since = timezone.now() - timedelta(hours=1) if halted else None
    ShellChannel.objects.update(halted_at=since)
    explained = explain(
        channel=channel, system=system, arch=arch or None, current_version=current or None
    )
    query = f"ch={channel}&os={system}"
    query += f"&arch={arch}" if arch else ""
    query += f"&current_version={current}" if current else ""
    assert ask(query).status_code == explained.status
    if explained.status == 204 and halted and channel == "stable":
        assert "halted" in explained.steps[-1]
    else:
        assert any(each in explained.steps[-1] for each in why.split("|")), explained.steps
