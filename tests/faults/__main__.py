"""The matrix of faults: ``python -m tests.faults [--write] [--go-on] [SCENARIO...]``.

It runs beside the servers of ``python -m tests.tools with``, as `make faults` does, and says what was seen. It ends
with an error where something happened that may never happen. ``.local/faults/outcomes.json`` has every figure; with
``--write`` the page is written into docs.
"""

import argparse
import importlib
import json
import os
import shutil
import signal
import sys
import tempfile
from contextlib import nullcontext
from pathlib import Path

import django

from tests.tools.folders import LOCAL, ROOT, claim


def main(arguments: list[str]) -> int:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    django.setup()
    # Models can be imported only now.
    scenarios = importlib.import_module("tests.faults.scenarios")
    options = _options(arguments, scenarios.BY_NAME)
    # Ended by a signal, it still puts away what it made.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    stages = importlib.import_module("tests.faults.stage")
    matrix = importlib.import_module("tests.faults.matrix")
    page = importlib.import_module("tests.faults.page")
    outcomes = []
    kept = claim(claim(LOCAL) / "faults")
    known = kept / "outcomes.json"
    if options.go_on and known.exists():
        before = page.from_json(json.loads(known.read_text()))
        outcomes = [each for each in before if each.name not in options.names]
    with (
        tempfile.TemporaryDirectory(prefix="faults-") as folder,
        stages.stage(Path(folder), nullcontext) as stage,
    ):
        flow = importlib.import_module("tests.faults.traffic").Traffic(stage)
        # In the order of the table, whatever the order of the names: the last one moves the database.
        for scenario in scenarios.SCENARIOS:
            if scenario.name in (options.names or scenarios.BY_NAME):
                outcome = matrix.run(stage, scenario, flow)
                outcomes.append(outcome)
                print(page.told(outcome), flush=True)
                known.write_text(json.dumps(page.as_json(outcomes), indent=1) + "\n")
        for log in Path(folder).glob("*.log"):
            shutil.copy(log, kept)
    folder = ROOT / "docs" if options.write else kept
    outcomes.sort(key=lambda each: list(scenarios.BY_NAME).index(each.name))
    page.write(outcomes, folder)
    print(f"\nThe page is {folder / 'faults.md'}", flush=True)
    return 1 if any(outcome.broken for outcome in outcomes) else 0


def _options(arguments: list[str], known: object) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--write", action="store_true", help="into docs, and not into .local")
    parser.add_argument("--go-on", action="store_true", help="beside what the last run has seen")
    parser.add_argument("names", nargs="*", metavar="SCENARIO", help=", ".join(known))  # type: ignore[call-overload]
    options = parser.parse_args(arguments)
    if unknown := set(options.names) - set(known):  # type: ignore[call-overload]
        parser.error(f"there is no {', '.join(sorted(unknown))}")
    return options


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
