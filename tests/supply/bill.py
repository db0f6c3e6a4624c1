"""Writes the service's bill of materials: ``python -m tests.supply.bill [<lock> <file>]``.

CycloneDX in JSON, from the locked requirements: every package with its version and hashes, and the console's font. The
library validates it before it is written, and two runs write the same bytes.
"""

import json
import subprocess
import sys
from pathlib import Path

from tests.supply import fonts
from tests.tools.folders import LOCAL, ROOT

LOCK = ROOT / "requirements.lock"
BILL = LOCAL / "build" / "sbom.cdx.json"
# Without its warning that a lock file does not say which package asked for which.
COMMAND = (sys.executable, "-W", "ignore", "-m", "cyclonedx_py", "requirements")


def write(*, lock: Path, to: Path) -> None:
    """``CalledProcessError`` if the bill could not be made or is not valid."""
    to.parent.mkdir(parents=True, exist_ok=True)
    # The library leaves an empty file when it fails.
    draft = to.with_suffix(".draft")
    options = ["--pyproject", str(ROOT / "pyproject.toml"), "--output-reproducible", "--validate"]
    command = [*COMMAND, str(lock), *options, "--output-file", str(draft)]
    subprocess.run(command, check=True, cwd=ROOT)
    bill = json.loads(draft.read_text())
    bill["components"].append(fonts.component())
    draft.write_text(json.dumps(bill, indent=2) + "\n")
    draft.replace(to)


def main(arguments: list[str]) -> int:
    lock, bill = (Path(each) for each in arguments or (LOCK, BILL))
    try:
        write(lock=lock, to=bill)
    except subprocess.CalledProcessError as error:
        return error.returncode
    print(f"{bill} is written")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
