"""Scripts in `tests/wire` with SDKs for Node: one JSON object a line in, one out."""

import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tests.tools.folders import ROOT

Say = Callable[..., dict[str, Any]]


@contextmanager
def running_script(name: str, *arguments: str) -> Iterator[Say]:
    """Runs a script with arguments; call what comes out of this with the members of a line."""
    with subprocess.Popen(
        ["node", name, *arguments],
        cwd=ROOT / "tests" / "wire",
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        stdin, stdout = process.stdin, process.stdout

        def say(**line: Any) -> dict[str, Any]:
            stdin.write(f"{json.dumps(line)}\n")
            stdin.flush()
            answer: dict[str, Any] = json.loads(stdout.readline())
            return answer

        yield say
        stdin.close()
        assert process.wait(60) == 0
