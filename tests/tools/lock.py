"""Rewrites the locked requirements from pyproject.toml: ``python -m tests.tools.lock [--upgrade]``.

The resolver lives in an environment that is thrown away, so that it is nobody's dependency.
"""

import subprocess
import sys
import tempfile
import venv
from pathlib import Path

from tests.tools.folders import ROOT

FLAGS = [
    *("--quiet", "--universal", "--python-version", "3.11", "--generate-hashes"),
    *("--no-annotate", "--no-header", "--no-emit-index-url"),
]
# File, groups beyond the service's own requirements, and the smaller lock whose versions it keeps.
LOCKS = [
    ("requirements.lock", [], []),
    ("requirements-local.lock", ["local"], ["requirements.lock"]),
    ("requirements-test.lock", ["local", "test"], ["requirements-local.lock"]),
    ("requirements-wire.lock", ["local", "test", "wire"], ["requirements-test.lock"]),
]


def main(options: list[str]) -> None:
    """Each lock builds on the one before, so that all agree on every version."""
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = Path(folder) / "bin" / "python"
        install = ["install", "--quiet", "--only-binary", ":all:", "uv"]
        subprocess.run([python, "-m", "pip", *install], check=True)
        for name, groups, smaller in LOCKS:
            chosen = [part for group in groups for part in ("--group", group)]
            bounds = [part for each in smaller for part in ("--constraints", each)]
            command = [
                "uv",
                "pip",
                "compile",
                *FLAGS,
                *options,
                "pyproject.toml",
                *chosen,
                *bounds,
                "-o",
                name,
            ]
            subprocess.run([python, "-m", *command], check=True, cwd=ROOT)
            print(f"{name} is written", flush=True)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except subprocess.CalledProcessError as error:
        sys.exit(error.returncode)
