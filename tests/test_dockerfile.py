"""The container image, as far as it can be tried without a container engine.

The folder is filtered as .dockerignore says, and the commands of the Dockerfile run in what is left, beside the
servers of this test run. `tests/served/deployed` builds it, and starts all of compose.yaml.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.apps import apps
from django.conf import settings

from tests.tools.ports import free
from tests.waiting import eventually

ROOT = Path(__file__).resolve().parent.parent
DEADLINE = 60.0
DOCKERFILE = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
INSTRUCTIONS = [line.partition(" ")[::2] for line in DOCKERFILE.splitlines() if line.strip()]
# Not looked into at all: they are large, and .dockerignore would refuse them at the door.
HEAVY = {".git", ".venv", ".local", "node_modules"}


def ignored(path: str, rules: list[str]) -> bool:
    """Returns whether .dockerignore excludes a path: the last rule that fits it or a folder above it decides."""
    parents = [path, *(str(each) for each in Path(path).parents if each != Path())]
    out = False
    for rule in rules:
        pattern = re.escape(rule.removeprefix("!"))
        pattern = pattern.replace(r"\*\*/", "(?:.*/)?").replace(r"\*", "[^/]*")
        if any(re.fullmatch(pattern, each) for each in parents):
            out = not rule.startswith("!")
    return out


def rules() -> list[str]:
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def context() -> Iterator[str]:
    """The files that a build would be given, relative to this folder."""
    for folder, folders, files in os.walk(ROOT):
        here = Path(folder).relative_to(ROOT)
        if here == Path():
            folders[:] = [each for each in folders if each not in HEAVY]
        yield from (
            path for path in (str(here / name) for name in files) if not ignored(path, rules())
        )


def arguments(instruction: str) -> str:
    """Returns the arguments of the last instruction of that name."""
    found: list[str] = [rest for name, rest in INSTRUCTIONS if name == instruction]
    return found[-1].strip()


def command_of(text: str) -> list[str]:
    """An exec form, which is JSON; a shell form is not."""
    command: list[str] = json.loads(text[text.index("[") :])
    return command


def services() -> dict[str, dict[str, Any]]:
    known: dict[str, dict[str, Any]] = yaml.safe_load((ROOT / "compose.yaml").read_text())[
        "services"
    ]
    return known


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """Builds the working folder of the image."""
    for path in context():
        target = tmp_path / "image" / path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / path, target)
    return tmp_path / "image"


def environ(**own: str) -> Mapping[str, str]:
    """Variables of the image and of this test run, with the environment's programs first, as in the image."""
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": programs, "WEB_WORKERS": "1", **own}


def run(command: list[str], cwd: Path, **own: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=cwd,
        env=environ(**own),
        capture_output=True,
        text=True,
        check=False,
        timeout=DEADLINE,
    )


def test_rules_of_dockerignore_are_read_as_docker_reads_them() -> None:
    given = ["*", "!config", "config/console/*", "!config/console/__init__.py", "**/__pycache__"]
    assert not ignored("config/settings.py", given)
    assert not ignored("config/console/__init__.py", given)
    assert ignored("config/console/site.py", given)
    assert ignored("config/console/pages/site.py", given)
    assert ignored("config/__pycache__/settings.pyc", given)
    assert ignored("tests/platform/observability/test_logs.py", given)
    assert ignored("Makefile", given)


def test_the_image_holds_the_whole_service_and_nothing_else() -> None:
    tops = {path.split("/")[0] for path in context()}
    own = {each.name for each in apps.get_app_configs() if (ROOT / each.name).is_dir()}
    assert tops == own | {"docs", "manage.py", "requirements.lock", "templates"}
    # The console shows operators what to do about an alert.
    assert [each for each in context() if each.startswith("docs")] == ["docs/operating.md"]


@pytest.mark.full
def test_the_commands_of_the_image_work_on_what_it_holds(image: Path) -> None:
    done = run(["python", "manage.py", "check"], image)
    assert done.returncode == 0, done.stderr
    for service in services().values():
        if service.get("command", [])[1:2] == ["manage.py"]:
            done = run([*service["command"], "--help"], image)
            assert done.returncode == 0, done.stderr


@pytest.mark.full
def test_the_service_of_the_image_starts_is_found_healthy_and_stops(image: Path) -> None:
    look = command_of(arguments("HEALTHCHECK"))
    own = {"HOST": "127.0.0.1", "PORT": str(free("127.0.0.1", 0))}
    assert run(look, image, **own).returncode != 0
    with subprocess.Popen(
        command_of(arguments("CMD")), cwd=image, env=environ(**own), stderr=subprocess.DEVNULL
    ) as process:
        try:
            eventually(
                lambda: run(look, image, **own).returncode == 0 or process.poll() is not None
            )
            assert process.poll() is None
            process.send_signal(getattr(signal, arguments("STOPSIGNAL")))
            assert process.wait(DEADLINE) == 0
        finally:
            if process.poll() is None:
                process.kill()


def test_the_image_is_pinned_and_runs_as_nobody_in_particular() -> None:
    base = arguments("ARG").removeprefix("PYTHON=")
    assert re.fullmatch(r"python:3\.1[12](\.\d+)?-slim-\w+", base)
    assert {rest.split()[0] for name, rest in INSTRUCTIONS if name == "FROM"} == {"${PYTHON}"}
    last = [name for name, _ in INSTRUCTIONS]
    last_from = len(last) - last[::-1].index("FROM")
    assert "USER" in last[last_from:]
    assert arguments("USER") not in {"root", "0"}
    assert "--require-hashes" in DOCKERFILE


def test_a_stop_grants_streams_as_much_time_as_the_service_takes() -> None:
    granted = services()["web"]["stop_grace_period"]
    assert int(granted.removesuffix("s")) > settings.LLM_MAX_SECONDS + 30


def test_every_container_is_watched_or_says_that_it_is_not() -> None:
    for name, service in services().items():
        assert "build" in service or "healthcheck" in service, name
        assert service["restart"] in {"unless-stopped", "no"}, name
    once = {"migrate", "roles", "bucket", "folder"}
    assert {name for name, each in services().items() if each["restart"] == "no"} == once
    lasting = {"proxy", "web", "worker", "database", "cache", "storage"}
    assert services().keys() == once | lasting


def test_every_container_is_confined_and_limited() -> None:
    for name, service in services().items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert {"mem_limit", "pids_limit", "tmpfs"} <= service.keys(), name
        # The service's image names its own user.
        assert "build" in service or service["user"] not in {"root", "0"}, name


def test_every_image_may_be_named_by_its_digest() -> None:
    page = (ROOT / "docs" / "examples" / "compose" / "images.env").read_text()
    for name, service in services().items():
        chosen = service["build"]["args"]["PYTHON"] if "build" in service else service["image"]
        variable = re.fullmatch(r"\$\{([A-Z]+_IMAGE):-[a-z/]+:[\w.-]+\}", chosen)
        assert variable, name
        assert f"\n{variable[1]}=" in page
    assert arguments("ARG").removeprefix("PYTHON=") in services()["web"]["build"]["args"]["PYTHON"]


def test_the_owner_of_the_tables_is_known_to_those_that_need_it_alone() -> None:
    knows = {name for name, each in services().items() if "owner.env" in each.get("env_file", "")}
    assert knows == {"migrate", "roles"}
    for name in ("web", "worker"):
        assert "roles" in services()[name]["depends_on"]


def test_the_root_user_of_the_storage_is_known_to_it_and_to_whoever_makes_the_bucket_alone() -> (
    None
):
    knows = {
        name for name, each in services().items() if "storage-root.env" in each.get("env_file", "")
    }
    assert knows == {"storage", "bucket"}


def test_the_proxies_of_compose_and_of_a_host_hold_callers_to_the_same() -> None:
    examples = ROOT / "docs" / "examples"
    host, compose = (
        (examples / folder / "nginx.conf").read_text() for folder in ("hosting", "compose")
    )
    directive = re.compile(
        r"^ *((?:client|limit|proxy|error_page|return 429|location)[^;{]*)", re.MULTILINE
    )
    missing = {each.strip() for each in directive.findall(host)} - {
        each.strip() for each in directive.findall(compose)
    }
    # There no request is logged.
    assert missing == {"location /account/"}


def test_the_proxy_is_where_the_others_look_for_it() -> None:
    examples = ROOT / "docs" / "examples" / "compose"
    proxy, web = (services()[name]["networks"]["front"] for name in ("proxy", "web"))
    given = (examples / "service.env").read_text()
    assert f"\nTRUSTED_PROXIES={proxy['ipv4_address']}\n" in given
    assert f"server {web['ipv4_address']}:8000;" in (examples / "nginx.conf").read_text()
    [alias] = proxy["aliases"]
    name = re.fullmatch(r"\$\{CDN_HOST:-([a-z.]+)\}", alias)
    assert name
    assert f"CDN_URL=https://{name[1]}/releases\n" in given
    assert f"STORAGE_URL=s3://releases?endpoint=https://{name[1]}&" in given
    assert f"server_name {name[1]};" in (examples / "nginx.conf").read_text()
