"""Containers of docs/examples/kubernetes: each by its own command, variables, user, limits and probes."""

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import quote, unquote, urlsplit

import pytest
import requests

from tests.kustomize import Manifest, containers, pod, rendered
from tests.served.conftest import Ground
from tests.served.deployed.engine import Engine, in_time
from tests.test_kubernetes import SECRET
from tests.tools.folders import ROOT

# Building takes minutes on a busy machine.
pytestmark = [pytest.mark.wire, pytest.mark.timeout(2400)]
OVERLAY = ROOT / "docs" / "examples" / "kubernetes" / "overlays" / "example"
NETWORK = "manifests"
SOCKET, DATABASE = ".s.PGSQL.5432", "/run/database"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Runs containers of manifests one by one, as a cluster would beside what its Secrets name."""

    engine: Engine
    image: str
    manifests: list[Manifest]
    secrets: dict[str, dict[str, str]]
    socket: str

    def options(self, manifest: Manifest, container: Manifest) -> list[str]:
        spec = pod(manifest) or {}
        limits, confined = container["resources"]["limits"], container["securityContext"]
        assert confined["readOnlyRootFilesystem"]
        assert not confined["allowPrivilegeEscalation"]
        places = {each["name"]: each["emptyDir"]["sizeLimit"] for each in spec["volumes"]}
        mounts = container["volumeMounts"]
        own = [f"--tmpfs={each['mountPath']}:size={places[each['name']][:-1]}" for each in mounts]
        user = spec["securityContext"]
        return [
            f"--network={NETWORK}",
            *("--read-only", "--security-opt=no-new-privileges:true"),
            f"--user={user['runAsUser']}:{user['runAsGroup']}",
            f"--memory={limits['memory'][:-1]}",
            *(f"--cap-drop={each}" for each in confined["capabilities"]["drop"]),
            *own,
            *(f"--env={name}={value}" for name, value in self._environ(container).items()),
            f"--volume={self.socket}/{SOCKET}:{DATABASE}/{SOCKET}",
        ]

    def start(self, name: str) -> str:
        """Runs what comes first of a manifest's pods to its end, and starts the other; its number."""
        manifest = self._named(name)
        *before, last = containers(manifest)
        for each in before:
            self.run(self.options(manifest, each), each["command"])
        started = self.run(["--detach", *self.options(manifest, last)], last["command"])
        return started.splitlines()[-1]

    def run(self, options: Sequence[str], command: Sequence[str]) -> str:
        return self.engine.run("docker", "run", *options, self.image, *command).strip()

    def asked(self, number: str, port: int, path: str) -> str:
        """The body of a good answer, or an empty one; a probe's answer may have none."""
        [found] = json.loads(self.engine.run("docker", "inspect", number))
        address = found["NetworkSettings"]["Networks"][NETWORK]["IPAddress"]
        with suppress(requests.RequestException):
            answer = requests.get(f"http://{address}:{port}{path}", timeout=30)
            return answer.text or "-" if answer.ok else ""
        return ""

    def state(self, number: str) -> dict[str, object]:
        [found] = json.loads(self.engine.run("docker", "inspect", number))
        return dict(found["State"])

    def last_of(self, name: str) -> Manifest:
        *_, last = containers(self._named(name))
        return last

    def _named(self, name: str) -> Manifest:
        pods = [each for each in self.manifests if pod(each)]
        [found] = [each for each in pods if each["metadata"]["name"] == name]
        return found

    def _environ(self, container: Manifest) -> dict[str, str]:
        found: dict[str, str] = {}
        for each in container["envFrom"]:
            if "configMapRef" in each:
                [given] = [one for one in self.manifests if one["kind"] == "ConfigMap"]
                assert given["metadata"]["name"] == each["configMapRef"]["name"]
                found |= given["data"]
            else:
                found |= self.secrets[each["secretRef"]["name"]]
        return found


@pytest.fixture(scope="module")
def cluster(engine: Engine, image: str, ground: Ground) -> Iterator[Cluster]:
    all_of_it = {**os.environ, **ground.environ}

    def address(url: str) -> str:
        parts = urlsplit(url)
        return parts._replace(netloc=f"{parts.username}@{quote(DATABASE, safe='')}").geturl()

    here = {
        "DATABASE_URL": address(all_of_it["DATABASE_URL"]),
        "DATABASE_OWNER_URL": address(all_of_it["DATABASE_OWNER_URL"]),
        # Its socket is for this user alone.
        "CACHE_URL": "",
    }
    owner = {"DATABASE_OWNER_URL": here.pop("DATABASE_OWNER_URL")}
    given = {name: here.get(name, all_of_it[name]) for name in SECRET}
    engine.run("docker", "network", "create", NETWORK)
    cluster = Cluster(
        engine=engine,
        image=image,
        manifests=rendered(OVERLAY),
        secrets={"shell": given, "shell-owner": owner},
        socket=unquote(urlsplit(ground.database.url).netloc.rpartition("@")[2]),
    )
    try:
        yield cluster
    finally:
        for number in engine.run("docker", "ps", "--quiet", f"--filter=network={NETWORK}").split():
            engine.tried("docker", "rm", "--force", number)
        engine.tried("docker", "network", "rm", NETWORK)


def test_the_migration_and_the_roles_come_to_their_end(cluster: Cluster) -> None:
    number = cluster.start("shell-migration")
    in_time(lambda: not cluster.state(number)["Running"])
    assert cluster.state(number)["ExitCode"] == 0


def test_web_pods_start_behind_the_migration_and_answer_their_probes(cluster: Cluster) -> None:
    number = cluster.start("shell-web")
    web = cluster.last_of("shell-web")
    ports = {each["name"]: each["containerPort"] for each in web["ports"]}
    for name in ("startupProbe", "livenessProbe", "readinessProbe"):
        asked = web[name]["httpGet"]
        in_time(lambda asked=asked: cluster.asked(number, ports[asked["port"]], asked["path"]))
    assert "shell_" in cluster.asked(number, ports["metrics"], "/metrics")
    assert cluster.state(number)["Running"]


def test_worker_pods_work(cluster: Cluster) -> None:
    number = cluster.start("shell-worker")
    [metrics] = cluster.last_of("shell-worker")["ports"]
    in_time(lambda: "shell_" in cluster.asked(number, metrics["containerPort"], "/metrics"))
    assert cluster.state(number)["Running"]
