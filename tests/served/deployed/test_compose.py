"""compose.yaml, started whole: each service by its own command, variables, limits and health check.

The images of PostgreSQL, Redis, nginx and the S3 server are stand-ins whose programs are this machine's (moto for the
last); the service's is as it is built. The files beside compose.yaml are those of docs/examples/compose.
"""

import base64
import datetime as dt
import json
import re
import secrets
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import boto3
import pytest
import requests
import yaml
from botocore.config import Config
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from requests.adapters import HTTPAdapter

from tests.releases.signing import Signer
from tests.served.deployed.engine import Engine, in_time
from tests.served.deployed.image import BASE, PYTHON, STAND_IN, build_stand_in, programs
from tests.served.people import PASSWORD
from tests.served.service import HOST
from tests.served.shell import DONE, Shell, stand_in, text_of
from tests.tools.folders import ROOT
from tests.tools.ports import free
from tests.tools.variables import for_tests

# Building takes minutes on a busy machine.
pytestmark = [pytest.mark.wire, pytest.mark.timeout(2400)]
EXAMPLES = ROOT / "docs" / "examples" / "compose"
COMPOSE = ("docker-compose", "--file", "compose.yaml", "--file", "here.yaml")
NAME, CDN = "shell.example.com", "cdn.example.com"
PROJECT = "deployed"
AUTHORITY = "/etc/ssl/authority.pem"
PROVIDER = 9100
ORDINARY = {
    "web": 10001,
    "worker": 10001,
    "storage": 10001,
    "database": 999,
    "cache": 998,
    "proxy": 101,
}
ONCE = ("migrate", "roles", "bucket", "folder")
EMAIL = "ada@deployed.test"
SEED = f"""
from django.utils import timezone
from accounts.audit import Actor
from accounts.models import User
from licensing.licences import create_client
from licensing.models import Plan
now, plan = timezone.now(), Plan.objects.create(name='Plan')
client = create_client(name='Client', plan=plan, by=Actor(name='test'), now=now)
User.objects.create_user('{EMAIL}', '{PASSWORD}', client=client)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """Everything of the file, running; callers know its port and its authority."""

    engine: Engine
    folder: Path
    port: int
    signer: Signer
    publish_secret: str
    storage: Mapping[str, str]

    def compose(self, *arguments: str) -> str:
        return self.engine.run(*COMPOSE, *arguments, cwd=self.folder)

    def tried(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.engine.tried(*COMPOSE, *arguments, cwd=self.folder)

    def within(self, service: str, *command: str) -> str:
        return self.engine.run("docker", "exec", self.number(service), *command).strip()

    def inspected(self, service: str) -> dict[str, Any]:
        [found] = json.loads(self.engine.run("docker", "inspect", self.number(service)))
        return dict(found)

    def number(self, service: str) -> str:
        """Returns the number of its container; compose itself takes a second for it."""
        labels = {"project": PROJECT, "service": service}
        only = [f"--filter=label=com.docker.compose.{name}={is_}" for name, is_ in labels.items()]
        return self.engine.run("docker", "ps", "--all", "--quiet", *only).strip()

    def session(self, host: str) -> requests.Session:
        """Trusts the test's authority, and finds the host behind the proxy's port."""
        session = requests.Session()
        session.trust_env = False
        session.verify = str(self.folder / "tls" / "authority.pem")
        session.headers["Host"] = host
        session.mount("https://", _To(host))
        return session

    @property
    def address(self) -> str:
        return f"https://{HOST}:{self.port}"


class _To(HTTPAdapter):
    """Speaks TLS to a host of this name, whatever the address."""

    def __init__(self, host: str) -> None:
        self._host = host
        super().__init__()

    def init_poolmanager(self, *args: Any, **options: Any) -> None:
        names = {"server_hostname": self._host, "assert_hostname": self._host}
        super().init_poolmanager(*args, **options, **names)


class _Shell(Shell):
    """A shell outside, by way of nginx."""

    def __init__(self, stack: Stack) -> None:
        super().__init__(stack.address)
        self._session = stack.session(NAME)


@pytest.fixture(scope="module")
def stack(engine: Engine, image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    build_stand_in(engine)
    folder = tmp_path_factory.mktemp("compose")
    # Owners of what is mounted are other users.
    folder.chmod(0o755)
    shutil.copyfile(ROOT / "compose.yaml", folder / "compose.yaml")
    for each in filter(Path.is_file, EXAMPLES.iterdir()):
        shutil.copyfile(each, folder / each.name)
    port, signer = free(HOST, 0), Signer()
    given = for_tests(folder)
    publish_secret = given["PUBLISH_SECRETS"]
    _authority(folder / "tls")
    _fill_in(folder, given, signer)
    (folder / ".env").write_text(_images(port))
    (folder / "here.yaml").write_text(yaml.safe_dump(_here(folder)))
    stack = Stack(
        engine=engine,
        folder=folder,
        port=port,
        signer=signer,
        publish_secret=publish_secret,
        storage=_read(folder / "storage.env"),
    )
    try:
        try:
            stack.compose("up", "--detach", "--no-build")
            in_time(lambda: _is_up(stack))
        except BaseException as error:
            error.add_note(stack.compose("ps", "--all"))
            error.add_note(stack.compose("logs", "--no-color", "--tail", "20"))
            raise
        # As docs/operating.md says.
        stack.within("web", "python", "manage.py", "rotate_signing_key")
        stack.within("web", "python", "manage.py", "shell", "-c", SEED)
        yield stack
    finally:
        stack.tried("down", "--volumes", "--timeout", "30")


@pytest.fixture(scope="module")
def shell(stack: Stack) -> Shell:
    shell = _Shell(stack)
    assert shell.login(EMAIL, PASSWORD).status_code == 200
    return shell


def test_each_is_healthy_by_its_own_check_or_has_done_its_work(stack: Stack) -> None:
    for name in ORDINARY:
        state = stack.inspected(name)["State"]
        assert state["Running"], name
        assert state.get("Health", {}).get("Status") == (None if name == "worker" else "healthy"), (
            name
        )
    for name in ONCE:
        assert stack.inspected(name)["State"]["ExitCode"] == 0, name


def test_each_is_an_ordinary_user_without_rights_in_a_file_system_that_nobody_changes(
    stack: Stack,
) -> None:
    for name, user in ORDINARY.items():
        status = dict(
            line.split(":\t", 1)
            for line in stack.within(name, "cat", "/proc/1/status").splitlines()
        )
        assert status["Uid"].split() == [str(user)] * 4, name
        assert int(status["CapEff"], 16) == int(status["CapBnd"], 16) == 0, name
        assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2"), name
        refused = stack.engine.tried(
            *("docker", "exec", "--user=0", stack.number(name), "touch", "/etc/here")
        )
        assert "Read-only file system" in refused.stdout, name


def test_each_has_its_limits(stack: Stack) -> None:
    services = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]
    units = {"m": 1024**2, "g": 1024**3}
    for name in ORDINARY:
        limit = services[name]["mem_limit"]
        host = stack.inspected(name)["HostConfig"]
        assert host["Memory"] == int(limit[:-1]) * units[limit[-1]], name
        assert host["PidsLimit"] == services[name]["pids_limit"], name
        # They are the kernel's, too.
        folder = stack.inspected(name)["Id"]
        found = list(Path("/sys/fs/cgroup").glob(f"**/{folder}/memory.max"))
        found += Path("/sys/fs/cgroup").glob(f"memory/**/{folder}/memory.limit_in_bytes")
        assert [int(each.read_text()) for each in found] == [host["Memory"]], name


def test_a_shell_signs_in_and_has_its_licence_and_an_answer(shell: Shell) -> None:
    licence = shell.get("/v1/license/status")
    assert (licence.status_code, licence.json()["status"]) == (200, "active")
    assert licence.headers["Strict-Transport-Security"]
    assert "X-RateLimit-Degraded" not in licence.headers
    with shell.stream(stand_in("tokens=10")) as stream:
        *chunks, done = stream
    assert done == DONE
    assert text_of(chunks)
    assert shell.usage()["calls"] == 1


def test_everyone_has_an_address_of_their_own_and_none_of_their_choice(
    stack: Stack, shell: Shell
) -> None:
    claimed = {"X-Forwarded-For": "203.0.113.9", "X-Request-ID": "asked-by-way-of-compose-0001"}
    assert shell.get("/v1/auth/me", headers=claimed).status_code == 200

    def lines() -> list[dict[str, Any]]:
        said = stack.engine.run("docker", "logs", stack.number("web")).splitlines()
        found = [line[line.index("{") :] for line in said if claimed["X-Request-ID"] in line]
        return [each for each in map(json.loads, found) if each["event"] == "request"]

    in_time(lines)
    [line] = lines()
    # Of this machine on the proxy's network: neither the proxy's nor the claimed one.
    assert line["address"] == "172.28.7.1"


def test_the_health_check_is_answered_for_everyone(stack: Stack) -> None:
    answer = stack.session(NAME).get(f"{stack.address}/healthz", timeout=30).json()
    assert (answer["status"], answer["checks"]) == ("ok", {"database": "ok", "cache": "ok"})


def test_a_release_is_uploaded_published_offered_and_fetched(stack: Stack) -> None:
    cdn, released = stack.session(CDN), {}
    for platform in ("darwin-aarch64", "windows-x86_64"):
        key, content = f"shell/1.0.0/shell-{platform}.tar.gz", f"{platform} ".encode() * 100_000
        _upload(stack, key, content)
        signature = stack.signer.artifact(content, file=Path(key).name, version="1.0.0")
        released[platform] = {"url": f"https://{CDN}/releases/{key}", "signature": signature}
        fetched = cdn.get(f"{stack.address}/releases/{key}", timeout=30)
        assert fetched.content == content
    document = {
        "version": "1.0.0",
        "channel": "stable",
        "pub_date": "2026-11-20T12:00:00Z",
        "notes": "What is new.",
        "platforms": released,
    }
    body = json.dumps(document).encode()
    published = stack.session(NAME).post(
        f"{stack.address}/v1/internal/manifest/publish?ch=stable",
        data=body,
        headers={
            "Authorization": f"Bearer {stack.publish_secret}",
            "Content-Type": "application/json",
            "X-Manifest-Signature": stack.signer.manifest(body, 1_764_000_000),
        },
        timeout=120,
    )
    assert published.status_code in {200, 201}, published.text
    offered = stack.session(NAME).get(
        f"{stack.address}/v1/updates/manifest?ch=stable&os=darwin", timeout=30
    )
    assert offered.status_code == 200, offered.text
    stored = cdn.get(f"{stack.address}/releases/shell/stable/latest.json", timeout=30)
    assert stored.content == body
    assert stored.headers["Cache-Control"].startswith("public, max-age=60")


def test_the_night_runs_and_the_worker_does_what_is_queued(stack: Stack, shell: Shell) -> None:
    assert stack.within("worker", "python", "manage.py", "nightly")
    assert shell.post("/v1/auth/password/reset", {"email": EMAIL}).status_code == 204
    in_time(lambda: EMAIL in stack.within("worker", "sh", "-c", "cat /tmp/mail/* 2>&1 || true"))


def test_the_owner_of_the_tables_and_the_cache_s_password_are_kept_from_whom_they_do_not_concern(
    stack: Stack,
) -> None:
    owns = (
        "select count(*) filter (where tableowner = current_user), bool_or(rolsuper) from pg_tables"
        " join pg_roles on rolname = tableowner where schemaname = 'public'"
    )
    script = (
        "import os\nfrom django.db import connection\n"
        f"with connection.cursor() as it: it.execute({owns!r}); print(*it.fetchone())\n"
        "print('DATABASE_OWNER_URL' in os.environ)"
    )
    said = stack.within("web", "python", "manage.py", "shell", "-c", script).splitlines()
    assert said[-2:] == ["0 False", "False"]
    refused = stack.within("cache", "sh", "-c", "REDISCLI_AUTH= redis-cli ping 2>&1 || true")
    assert "NOAUTH" in refused
    arguments = stack.within("cache", "cat", "/proc/1/cmdline")
    assert _read(stack.folder / "cache.env")["REDISCLI_AUTH"] not in arguments


def _upload(stack: Stack, key: str, content: bytes) -> None:
    """As a pipeline does: signed for the CDN's own host, and sent to this port."""
    client = boto3.client(
        "s3",
        endpoint_url=f"https://{CDN}",
        region_name="us-east-1",
        aws_access_key_id=stack.storage["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=stack.storage["AWS_SECRET_ACCESS_KEY"],
        config=Config(s3={"addressing_style": "path"}),
    )
    signed = client.generate_presigned_url("put_object", Params={"Bucket": "releases", "Key": key})
    parts = urlsplit(signed)
    answer = stack.session(CDN).put(
        f"{stack.address}{parts.path}?{parts.query}", data=content, timeout=60
    )
    assert answer.status_code == 200, answer.text


def _is_up(stack: Stack) -> bool:
    return all(
        stack.inspected(name)["State"].get("Health", {"Status": "healthy"})["Status"] == "healthy"
        for name in ORDINARY
    )


def _fill_in(folder: Path, given: Mapping[str, str], signer: Signer) -> None:
    """Puts values where the examples leave them to the reader."""
    superuser, owner, service, cache, storage, root = (secrets.token_hex(16) for _ in range(6))
    for name, values in {
        "database.env": [superuser, owner],
        "owner.env": [owner],
        "cache.env": [cache],
        "service.env": [service, cache],
        "storage.env": [storage],
        "storage-root.env": [root],
    }.items():
        text = (folder / name).read_text()
        # Without the comments, which have the same sign.
        text = "".join(line for line in text.splitlines(keepends=True) if line[0] != "#")
        for value in values:
            text = text.replace("…", value, 1)
        assert "…" not in text, name
        (folder / name).write_text(text)
    own = {
        **{name: value for name, value in given.items() if name.isupper()},
        "LLM_BASE_URL": f"http://{HOST}:{PROVIDER}/v1",
        "UPDATE_PUBLIC_KEY": base64.b64encode(signer.public).decode(),
        "EMAIL_URL": "file:///tmp/mail",
        "PYTHONDONTWRITEBYTECODE": "1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    documented = _read(folder / "service.env")
    with (folder / "service.env").open("a") as file:
        file.writelines(
            f"{name}={value}\n"
            for name, value in own.items()
            if name not in documented and name != "ALLOWED_HOSTS"
        )


def _read(file: Path) -> dict[str, str]:
    lines = file.read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if line and line[0] != "#")


def _images(port: int) -> str:
    """Each variable that docs/examples/compose/images.env names, with an image of this test."""
    names = re.findall(r"^([A-Z]+_IMAGE)=", (EXAMPLES / "images.env").read_text(), re.MULTILINE)
    images = {name: BASE if name == "PYTHON_IMAGE" else STAND_IN for name in names}
    own = {**images, "HTTPS_PORT": f"{HOST}:{port}", "COMPOSE_PROJECT_NAME": PROJECT}
    return "".join(f"{name}={value}\n" for name, value in own.items())


def _here(folder: Path) -> dict[str, Any]:
    """Returns the differences of this machine: programs of stand-ins, names, the authority and the model provider."""
    ours = {
        "volumes": [f"{folder}/tls/authority.pem:{AUTHORITY}:ro"],
        "environment": {"SSL_CERT_FILE": AUTHORITY, "AWS_CA_BUNDLE": AUTHORITY},
    }
    provider = {
        "image": STAND_IN,
        "network_mode": "service:web",
        "working_dir": str(ROOT),
        "volumes": [*programs(), f"{ROOT}:{ROOT}:ro"],
        "environment": {"PYTHONDONTWRITEBYTECODE": "1"},
        "command": [PYTHON, "-m", "tests.standins.provider", "--port", str(PROVIDER)],
    }
    # A busy machine takes longer to start a check than a host may.
    patient = {"healthcheck": {"timeout": "60s", "start_period": "300s"}}
    services = {
        **{name: dict(ours) for name in ("worker", "bucket")},
        "web": {**ours, **patient},
        "provider": provider,
        **{
            name: {"volumes": programs(), **patient}
            for name in ("proxy", "database", "cache", "storage")
        },
    }
    return {"services": services}


def _authority(folder: Path) -> None:
    """A certificate for both names, and itself as the authority to trust."""
    folder.mkdir()
    key, now = ec.generate_private_key(ec.SECP256R1()), dt.datetime.now(dt.UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, NAME)])
    names = x509.SubjectAlternativeName([x509.DNSName(NAME), x509.DNSName(CDN)])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(names, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
        .public_bytes(serialization.Encoding.PEM)
    )
    form = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    private = key.private_bytes(serialization.Encoding.PEM, *form)
    for file, content in {
        "authority.pem": certificate,
        "fullchain.pem": certificate,
        "privkey.pem": private,
    }.items():
        (folder / file).write_bytes(content)
        (folder / file).chmod(0o444)
