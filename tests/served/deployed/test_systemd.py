"""docs/examples/systemd under systemd itself, in a container that has the service's image as its system."""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

import pytest
import requests

from tests.served.conftest import Ground
from tests.served.deployed.engine import Engine, in_time
from tests.served.service import HOST
from tests.served.shell import PATIENCE
from tests.tools.folders import ROOT
from tests.tools.ports import free
from tests.tools.run import healthy
from tests.tools.variables import NAMES

# Building takes minutes on a busy machine.
pytestmark = [pytest.mark.wire, pytest.mark.timeout(2400)]
UNITS = ROOT / "docs" / "examples" / "systemd"
SOCKET, DATABASE = ".s.PGSQL.5432", "/opt/database"
HIGHEST_EXPOSURE = 3.0
ORDINARY = "10001"
# Systemd needs these as the first process of a container: rights that its units do without, and its own folders.
AS_A_HOST = (
    *("--user=0", "--network=host", "--cap-add=SYS_ADMIN", "--cap-add=SYS_PTRACE"),
    *("--security-opt=seccomp=unconfined", "--security-opt=apparmor=unconfined"),
    *("--tmpfs=/run:exec", "--tmpfs=/run/lock", "--volume=/sys/fs/cgroup:/sys/fs/cgroup:rw"),
)
BEGIN = (
    "cp -r /units/. /etc/systemd/system/ && ln -s /srv/service /srv/shell && "
    "ln -s /opt/venv /srv/service/.venv && exec /lib/systemd/systemd"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A container whose first process is systemd; the ports are for two instances of the web processes."""

    engine: Engine
    number: str
    ports: tuple[int, int]

    def run(self, *command: str) -> str:
        return self.engine.run("docker", "exec", self.number, *command).strip()

    def start(self, *units: str) -> None:
        done = self.engine.tried("docker", "exec", self.number, "systemctl", "start", *units)
        said = "" if done.returncode == 0 else self.run("journalctl", "--no-pager", "--lines=60")
        assert done.returncode == 0, done.stdout + said

    def shown(self, unit: str, name: str) -> str:
        return self.run("systemctl", "show", "--value", f"--property={name}", unit)

    @property
    def services(self) -> list[str]:
        return [*(f"shell-web@{port}" for port in self.ports), "shell-worker"]


@pytest.fixture(scope="module")
def machine(
    engine: Engine, image: str, ground: Ground, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Machine]:
    ports = free(HOST, 0), free(HOST, 0)
    folder = tmp_path_factory.mktemp("systemd")
    _write_variables(folder, ground, ports[0])
    sockets = unquote(urlsplit(ground.database.url).netloc.rpartition("@")[2])
    mounts = [
        f"{sockets}/{SOCKET}:{DATABASE}/{SOCKET}",
        f"{UNITS}:/units:ro",
        f"{folder}:/etc/shell:ro",
    ]
    volumes = [f"--volume={each}" for each in mounts]
    number = engine.run("docker", "run", "--detach", *AS_A_HOST, *volumes, image, "sh", "-c", BEGIN)
    machine = Machine(engine=engine, number=number.split()[-1], ports=ports)
    try:
        in_time(lambda: machine.run("sh", "-c", "systemctl is-system-running || true") == "running")
        machine.start(*machine.services)
        yield machine
    finally:
        engine.tried("docker", "rm", "--force", machine.number)


def test_systemd_has_no_complaint_about_any_unit(machine: Machine) -> None:
    units = [each.name.replace("@", "@8000") for each in UNITS.glob("shell-*.*") if each.is_file()]
    assert len(units) == 5
    assert machine.run("systemd-analyze", "verify", *units) == ""


def test_no_service_is_exposed(machine: Machine) -> None:
    for each in UNITS.glob("shell-*.service"):
        name = each.name.replace("@", "@8000")
        said = machine.run("systemd-analyze", "security", "--no-pager", "--offline=true", name)
        [exposure] = re.findall(r"Overall exposure level for \S+: ([\d.]+)", said)
        assert float(exposure) < HIGHEST_EXPOSURE, said


def test_web_processes_and_worker_run_after_the_migration(machine: Machine) -> None:
    assert machine.shown("shell-migrate", "Result") == "success"
    for port in machine.ports:
        in_time(lambda port=port: healthy(HOST, port))
    for each in machine.services:
        assert machine.shown(each, "ActiveState") == "active", each


def test_each_is_an_ordinary_user_without_rights_who_changes_no_file_but_its_own(
    machine: Machine,
) -> None:
    for each in machine.services:
        first = machine.shown(each, "MainPID")
        lines = machine.run("cat", f"/proc/{first}/status").splitlines()
        status = dict(line.split(":\t", 1) for line in lines)
        assert status["Uid"].split() == [ORDINARY] * 4, each
        assert int(status["CapEff"], 16) == int(status["CapBnd"], 16) == 0, each
        assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2"), each
        within = ["nsenter", f"--target={first}", "--mount", "--"]
        for place, writable in {
            "/srv/service/here": False,
            "/etc/here": False,
            "/var/lib/shell/here": True,
            "/tmp/here": True,
        }.items():
            done = machine.engine.tried("docker", "exec", machine.number, *within, "touch", place)
            assert (done.returncode == 0) == writable, (each, place, done.stdout)


def test_one_instance_serves_while_the_other_is_started_anew(machine: Machine) -> None:
    first, second = machine.ports
    before = machine.shown(f"shell-web@{second}", "MainPID")
    machine.run("systemctl", "restart", "--no-block", f"shell-web@{second}")
    while machine.shown(f"shell-web@{second}", "MainPID") in {before, "0"}:
        answer = requests.get(f"http://{HOST}:{first}/healthz", timeout=PATIENCE)
        assert answer.status_code == 200, answer.text
    in_time(lambda: healthy(HOST, second))


def test_a_worker_that_dies_is_started_again(machine: Machine) -> None:
    before = machine.shown("shell-worker", "MainPID")
    machine.run("systemctl", "kill", "--signal=KILL", "shell-worker")
    in_time(lambda: machine.shown("shell-worker", "MainPID") not in {before, "0"})


def test_the_night_runs_by_its_timer_s_unit(machine: Machine) -> None:
    machine.start("shell-nightly.timer", "shell-nightly.service")
    assert machine.shown("shell-nightly.service", "Result") == "success"
    assert machine.shown("shell-nightly.timer", "NextElapseUSecRealtime").endswith("02:20:00 UTC")


def _write_variables(folder: Path, ground: Ground, port: int) -> None:
    all_of_it = {**os.environ, **ground.environ}
    database = urlsplit(all_of_it["DATABASE_URL"])

    def address(role: str | None) -> str:
        return database._replace(netloc=f"{role}@{quote(DATABASE, safe='')}").geturl()

    owner = urlsplit(all_of_it.pop("DATABASE_OWNER_URL"))
    service = {
        **{name: all_of_it[name] for name in NAMES if name in all_of_it},
        "DATABASE_URL": address(database.username),
        # Its socket is for this user alone.
        "CACHE_URL": "",
        "STORAGE_URL": "file:///var/lib/shell",
        "EMAIL_URL": "file:///tmp/mail",
        "BASE_URL": f"http://{HOST}:{port}",
        "ALLOWED_HOSTS": HOST,
        "WEB_WORKERS": "1",
        "DRAIN_SECONDS": "0",
        "OPERATOR_SECOND_FACTOR": "off",
    }
    # Those would outrank the unit's own.
    service.pop("PORT", None)
    for name, values in {
        "service.env": service,
        "owner.env": {"DATABASE_OWNER_URL": address(owner.username)},
    }.items():
        (folder / name).write_text("".join(f"{n}={value}\n" for n, value in values.items()))
