"""Modules loaded before the first request is served."""

import subprocess
import sys

import pytest

from tests.tools.folders import ROOT

# Each takes a good part of a second and some MB of every worker, and most installations never use it.
SELDOM_USED = ("boto3", "stripe", "sentry_sdk")
# Settings load before gunicorn has patched anything, and with every command.
UNPATCHED = ("gevent", "requests", "llmproxy.dialects.by_name")
SETTINGS = f"import sys, config.settings; print(*set({UNPATCHED}) & set(sys.modules))"
LOADED = f"import sys, config.gunicorn, config.wsgi; print(*set({SELDOM_USED}) & set(sys.modules))"


@pytest.mark.parametrize("program", [LOADED, SETTINGS], ids=["the service", "the settings"])
def test_rarely_used_libraries_are_not_loaded_at_the_start(program: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )

    assert done.stdout.split() == []


def test_tasks_have_their_titles_in_a_process_that_has_queued_nothing() -> None:
    titles = "import config.wsgi; from config.platform.jobs.queue import title_of; print(*map(title_of, {}), sep='|')"
    names = ["accounts.send_password_link", "attention.tell", "mail.send"]
    done = subprocess.run(
        [sys.executable, "-c", titles.format(names)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "Email a password link|Notify operators of alerts|Send an email"
