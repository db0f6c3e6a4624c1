"""The environment in ``.venv``: made from hashed requirements, left alone while they hold, mended otherwise."""

import hashlib
import io
import os
import shutil
import socket
import subprocess
import sys
import tarfile
import zipfile
from importlib.metadata import distribution
from pathlib import Path

import pytest

from tests.tools.folders import ROOT
from tests.tools.variables import outside

PARTS = ["tests/__init__.py"]
PARTS += [
    f"tests/tools/{name}.py"
    for name in ("__init__", "beforehand", "children", "folders", "install", "ports", "stops")
]


def wheel(folder: Path, name: str) -> str:
    """A package of one module, and the line of a lock that asks for it."""
    path = folder / f"{name}-1.0-py3-none-any.whl"
    info = f"{name}-1.0.dist-info"
    files = {
        f"{name}.py": "",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    with zipfile.ZipFile(path, "w") as archive:
        for inside, text in files.items():
            archive.writestr(inside, text)
        archive.writestr(f"{info}/RECORD", "".join(f"{inside},,\n" for inside in files))
    return f"{name}==1.0 --hash=sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}\n"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project of two small locks, the second with one package more, in a folder with a space."""
    project = tmp_path_factory.mktemp("project") / "a project"
    for part in PARTS:
        (project / part).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / part, project / part)
    (project / "wheels").mkdir()
    write_lock(project, "local", wheel(project / "wheels", "shell_first"))
    write_lock(project, "test", wheel(project / "wheels", "shell_second"), keep="local")
    write_lock(project, "wire", wheel(project / "wheels", "shell_third_set"), keep="test")
    return project


def uv_wheel(folder: Path) -> str:
    """The uv of this environment as a wheel again, and its lines of a lock, in the form that `make lock` writes."""
    uv = distribution("uv")
    wheel_file = f"uv-{uv.version}-py3-none-any.whl"
    with zipfile.ZipFile(folder / wheel_file, "w") as archive:
        for file in uv.files or ():
            if file.parts[0].startswith("uv"):
                archive.write(str(file.locate()), str(file))
            elif file.name in ("uv", "uvx"):
                archive.write(str(file.locate()), f"uv-{uv.version}.data/scripts/{file.name}")
    digest = hashlib.sha256((folder / wheel_file).read_bytes()).hexdigest()
    return f"uv=={uv.version} \\\n    --hash=sha256:{digest}\n"


def write_lock(project: Path, name: str, line: str, keep: str = "") -> None:
    """A lock that asks for a package, and that begins with another lock."""
    kept = f"-r requirements-{keep}.lock\n" if keep else "--no-index\n"
    source = f"--find-links {(project / 'wheels').as_uri()}\n"
    (project / f"requirements-{name}.lock").write_text(kept + source + line)


def command(wanted: str) -> list[str]:
    return [sys.executable, "-m", "tests.tools.install", wanted]


def install(project: Path, wanted: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(wanted), cwd=project, capture_output=True, text=True, check=False)


def first_word(project: Path, wanted: str) -> str:
    """Returns its first line; kills it as soon as it has printed it."""
    with subprocess.Popen(
        command(wanted), cwd=project, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        said = process.stdout.readline()
        process.kill()
    return said


def has(project: Path, *modules: str) -> bool:
    imports = "\n".join(f"import {module}" for module in modules)
    command = [str(project / ".venv" / "bin" / "python"), "-c", imports]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def test_a_taken_port_is_told_before_anything_is_installed(project: Path) -> None:
    shutil.copy(ROOT / "Makefile", project)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = subprocess.run(
            # Without packages, as the Python of a new machine.
            ["make", "run", f"PYTHON={sys.executable} -S"],
            cwd=project,
            env={**outside(os.environ), "PORT": str(port)},
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode != 0
    assert f"Port {port} is taken. Choose another one: PORT=" in done.stderr
    assert not (project / ".venv").exists()


@pytest.mark.full
def test_an_interrupted_environment_is_made_again_and_then_kept(project: Path) -> None:
    assert "Making the environment" in first_word(project, "test")
    first = install(project, "test")
    assert "Making the environment" in first.stdout, first.stderr
    assert has(project, "shell_first", "shell_second")
    # The smaller set is part of the larger one: nothing is to be done, and nothing is taken away.
    for wanted in ("test", "local"):
        again = install(project, wanted)
        assert (again.returncode, again.stdout, again.stderr) == (0, "", "")
    assert has(project, "shell_second")


def test_a_changed_lock_is_installed_but_nothing_with_a_wrong_hash(project: Path) -> None:
    line = wheel(project / "wheels", "shell_third")
    before, _, sha = line.strip().rpartition(":")
    write_lock(project, "local", f"{before}:{sha[::-1]}\n")
    write_lock(project, "test", "", keep="local")
    wrong = install(project, "local")
    assert wrong.returncode == 1
    assert "THESE PACKAGES DO NOT MATCH THE HASHES" in wrong.stderr
    assert not has(project, "shell_third")


def test_a_package_that_would_be_built_here_is_refused(project: Path) -> None:
    built = project / "wheels" / "shell_fourth-1.0.tar.gz"
    ran = project / "ran"
    with tarfile.open(built, "w:gz") as archive:
        script = f"open({str(ran)!r}, 'w')".encode()
        entry = tarfile.TarInfo("shell_fourth-1.0/setup.py")
        entry.size = len(script)
        archive.addfile(entry, io.BytesIO(script))
    digest = hashlib.sha256(built.read_bytes()).hexdigest()
    write_lock(project, "local", f"shell_fourth==1.0 --hash=sha256:{digest}\n")
    refused = install(project, "local")
    assert refused.returncode == 1
    assert "No matching distribution found for shell_fourth" in refused.stderr
    assert not ran.exists()


def test_uv_installs_a_lock_that_names_it_and_refuses_a_wrong_hash(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheels = project / "wheels"
    lines = uv_wheel(wheels) + wheel(wheels, "shell_by_uv")
    write_lock(project, "local", lines)
    # Its lock says so to uv, but what it installs uv itself from is one line of the lock.
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", wheels.as_uri())
    done = install(project, "local")
    assert done.returncode == 0, done.stderr
    log = (project / ".venv" / "install.log").read_text()
    assert "Installed 1 package" in log
    assert "+ shell-by-uv==1.0" in log
    assert has(project, "shell_by_uv")
    kind, _, sha = wheel(wheels, "shell_wrong").strip().rpartition(":")
    write_lock(project, "local", f"{lines}{kind}:{sha[::-1]}\n")
    wrong = install(project, "local")
    assert wrong.returncode == 1
    assert "Hash mismatch" in (project / ".venv" / "install.log").read_text()
    assert not has(project, "shell_wrong")


def test_an_environment_from_another_folder_is_made_again(project: Path) -> None:
    """Its scripts would run the environment they were made in."""
    # Makes it, where no test before has; what is installed does not matter.
    install(project, "local")
    (project / ".venv" / "unfinished").unlink(missing_ok=True)
    assert "Making" not in first_word(project, "local")
    (project / ".venv" / "unfinished").unlink(missing_ok=True)
    moved = project.rename(project.with_name("moved"))
    assert "Making" in first_word(moved, "local")
