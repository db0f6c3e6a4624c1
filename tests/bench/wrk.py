"""Load by wrk, a program of Debian's that costs little itself: closed loops of callers on connections they keep."""

import json
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

SCRIPT = Path(__file__).with_name("wrk.lua")
MARK = "figures: "


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The results of callers. Milliseconds; ``failed`` counts missing answers and statuses of 400 and above."""

    requests: int
    rps: float
    p50: float
    p99: float
    failed: int


def run(
    url: str,
    *,
    callers: int,
    seconds: float,
    method: str = "GET",
    body: str = "",
    headers: Mapping[str, str] = {},
    tokens: Sequence[str] = (),
    bodies: Sequence[str] = (),
    script: Path = SCRIPT,
) -> Result:
    """Each caller asks again as soon as it is answered; tokens go round, a request each, as bearer tokens.

    So do ``bodies`` of one line each, without tokens. Another ``script`` may use all this in another way.
    """
    with tempfile.TemporaryDirectory(prefix="bench-wrk-") as name:
        folder = Path(name)
        # Lines are all that Lua reads by itself.
        lines = [f"{key}: {value}" for key, value in headers.items()]
        (folder / "headers").write_text("\n".join(lines))
        (folder / "tokens").write_text("\n".join(tokens))
        (folder / "bodies").write_text("\n".join(bodies))
        (folder / "body").write_text(body)
        command = [_program(), "-t", "1", "-c", str(callers), "-d", f"{max(1, round(seconds))}s"]
        command += ["--timeout", "30s", "-s", str(script), url, "--", str(folder), method]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=seconds + 90, check=False
        )
    assert done.returncode == 0, done.stderr or done.stdout
    return read(done.stdout)


def read(output: str) -> Result:
    """The figures in what wrk printed with our script."""
    line = next(line for line in output.splitlines() if line.startswith(MARK))
    figures = json.loads(line.removeprefix(MARK))
    return Result(
        requests=figures["requests"],
        # From its first to its last microsecond, not the seconds it was asked for.
        rps=figures["requests"] / (figures["microseconds"] / 1e6),
        p50=figures["p50"] / 1000,
        p99=figures["p99"] / 1000,
        failed=figures["failed"],
    )


def _program() -> str:
    program = shutil.which("wrk")
    assert program, "wrk is not installed; `make bench` installs it"
    return program
