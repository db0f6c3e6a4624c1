"""Modules loaded before the first request is served."""

import subprocess
import sys

from tests.tools.folders import ROOT

# Each takes a good part of a second and some MB of every worker, and most installations never use it.
SELDOM_USED = ("boto3", "stripe", "sentry_sdk")
LOADED = f"import sys, config.gunicorn, config.wsgi; print(*set({SELDOM_USED}) & set(sys.modules))"


def test_rarely_used_libraries_are_not_loaded_at_the_start() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOADED], cwd=ROOT, capture_output=True, text=True, check=True
    )

    assert done.stdout.split() == []
