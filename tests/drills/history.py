"""The code of releases before, from this repository's history."""

import io
import subprocess
import tarfile
from pathlib import Path

from tests.tools.folders import ROOT


class Absent(Exception):
    """The history of this checkout does not reach back to that release."""


def code_of(commit: str, folder: Path) -> Path:
    """The files of a commit."""
    try:
        done = subprocess.run(["git", "archive", commit], cwd=ROOT, capture_output=True, check=True)
    except (FileNotFoundError, subprocess.CalledProcessError) as error:
        raise Absent(f"{commit} is not in this history, or there is no git") from error
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder
