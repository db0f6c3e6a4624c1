"""Rewrites the locked requirements from pyproject.toml: ``python -m tests.tools.lock [--upgrade]``.

The resolver lives in an environment that is thrown away, so that it is nobody's dependency.
"""

import re
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

from tests.tools.folders import ROOT
from tests.tools.install import written

FLAGS = [
    *("--quiet", "--universal", "--python-version", "3.11", "--generate-hashes"),
    *("--no-annotate", "--no-header", "--no-emit-index-url"),
]
# The groups beyond the service's own requirements, by file. Each begins with the file before it.
LOCKS = {
    "requirements.lock": [],
    "requirements-local.lock": ["local"],
    "requirements-test.lock": ["local", "test"],
    "requirements-wire.lock": ["local", "test", "wire"],
}
# A requirement and its hashes.
ENTRY = re.compile(r"^[A-Za-z0-9].*\n(?:[ \t].*\n)*", re.MULTILINE)


def main(options: list[str]) -> None:
    """Each lock holds what it adds to the one before, so that all agree on every version."""
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = Path(folder) / "bin" / "python"
        install = ["install", "--quiet", "--only-binary", ":all:", "uv"]
        subprocess.run([python, "-m", "pip", *install], check=True)
        resolved, smaller = Path(folder) / "resolved.txt", ""
        for name, groups in LOCKS.items():
            bounds = ["--constraints", smaller] if smaller else []
            # The resolver keeps the versions that it finds where it writes.
            before = written(ROOT / name) if (ROOT / name).exists() else ""
            resolved.write_text("".join(ENTRY.findall(before)))
            command = [
                *("uv", "pip", "compile", *FLAGS, *options, "pyproject.toml"),
                *(part for group in groups for part in ("--group", group)),
                *(*bounds, "-o", str(resolved)),
            ]
            subprocess.run([python, "-m", *command], check=True, cwd=ROOT)
            (ROOT / name).write_text(added(resolved.read_text(), smaller))
            print(f"{name} is written", flush=True)
            smaller = name


def added(resolved: str, smaller: str) -> str:
    """Returns what a lock has to say: the smaller one's name, and each requirement that this one has not."""
    if not smaller:
        return resolved
    known = set(ENTRY.findall(written(ROOT / smaller)))
    new = [entry for entry in ENTRY.findall(resolved) if entry not in known]
    return "".join([f"-r {smaller}\n", *new])


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except subprocess.CalledProcessError as error:
        sys.exit(error.returncode)
