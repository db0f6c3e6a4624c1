"""The workflow of docs/examples/github: what it hands its signing key and its identity token to."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

WORKFLOW = Path(__file__).resolve().parents[3] / "docs" / "examples" / "github" / "release.yaml"
KEY = "TAURI_SIGNING_PRIVATE_KEY"


@pytest.fixture(scope="module")
def jobs() -> dict[str, Any]:
    jobs: dict[str, Any] = yaml.safe_load(WORKFLOW.read_text())["jobs"]
    return jobs


def test_the_signing_key_is_known_to_the_signing_step_alone(jobs: dict[str, Any]) -> None:
    holding = [step for job in jobs.values() for step in job["steps"] if KEY in json.dumps(step)]
    (signing,) = holding
    assert "signer sign" in signing["run"]
    assert "npm" not in signing["run"]
    assert "tauri build" not in signing["run"]
    rest = [{name: part for name, part in job.items() if name != "steps"} for job in jobs.values()]
    assert KEY not in json.dumps(rest)


def test_packages_run_no_scripts_and_not_beside_the_identity_token(jobs: dict[str, Any]) -> None:
    for job in jobs.values():
        runs = [step.get("run", "") for step in job["steps"]]
        assert all("--ignore-scripts" in run for run in runs if "npm ci" in run)
        if "id-token" in job["permissions"]:
            assert not any(re.search(r"\bnp[mx]\b", run) for run in runs)
