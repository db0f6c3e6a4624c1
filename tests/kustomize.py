"""The part of kustomize that docs/examples/kubernetes uses; a wire test holds it to kustomize itself."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

Manifest = dict[str, Any]
KNOWN = {
    "apiVersion",
    "kind",
    "resources",
    "namespace",
    "images",
    "replicas",
    "configMapGenerator",
    "patches",
    "labels",
}


def rendered(folder: Path) -> list[Manifest]:
    """The manifests of a folder, but for the hash in a generated name."""
    asked = yaml.safe_load((folder / "kustomization.yaml").read_text())
    assert asked.keys() <= KNOWN, asked.keys() - KNOWN
    found = [each for name in asked["resources"] for each in _resource(folder / name)]
    for given in asked.get("configMapGenerator", ()):
        _generate(found, given, folder)
    for given in asked.get("patches", ()):
        assert given.keys() == {"path"}
        for patch in yaml.safe_load_all((folder / given["path"]).read_text()):
            _merge(_named(found, patch["kind"], patch["metadata"]["name"]), patch)
    for given in asked.get("replicas", ()):
        _named(found, "Deployment", given["name"])["spec"]["replicas"] = given["count"]
    for manifest in found:
        if "namespace" in asked:
            manifest["metadata"]["namespace"] = asked["namespace"]
        for given in asked.get("labels", ()):
            manifest["metadata"].setdefault("labels", {}).update(given["pairs"])
        for container in containers(manifest):
            _name_image(container, asked.get("images", ()))
    return found


def pod(manifest: Manifest) -> Manifest | None:
    """The specification of the pods that a manifest makes."""
    found: Manifest | None = manifest.get("spec", {}).get("template", {}).get("spec")
    return found


def containers(manifest: Manifest) -> list[Manifest]:
    """All of a manifest's pods, those that come first included."""
    spec = pod(manifest) or {}
    return [*spec.get("initContainers", ()), *spec.get("containers", ())]


def variables(file: Path) -> dict[str, str]:
    """Reads the variables of a file of ``NAME=value`` lines."""
    lines = file.read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if line and line[0] != "#")


def _resource(path: Path) -> Iterator[Manifest]:
    if path.is_dir():
        yield from rendered(path)
    else:
        for each in yaml.safe_load_all(path.read_text()):
            # Objects shared by YAML's anchors would be changed in all places at once.
            yield json.loads(json.dumps(each))


def _generate(found: list[Manifest], given: Manifest, folder: Path) -> None:
    data = {k: v for name in given["envs"] for k, v in variables(folder / name).items()}
    if given.get("behavior") == "merge":
        _named(found, "ConfigMap", given["name"])["data"].update(data)
    else:
        name = {"name": given["name"]}
        found.append({"apiVersion": "v1", "kind": "ConfigMap", "metadata": name, "data": data})


def _name_image(container: Manifest, images: Sequence[Manifest]) -> None:
    name, _, tag = container["image"].partition(":")
    for given in images:
        if name == given["name"]:
            container["image"] = f"{given['newName']}:{given.get('newTag', tag)}"


def _named(found: list[Manifest], kind: str, name: str) -> Manifest:
    [only] = [each for each in found if (each["kind"], each["metadata"]["name"]) == (kind, name)]
    return only


def _merge(into: Manifest, patch: Manifest) -> None:
    for name, value in patch.items():
        if isinstance(value, dict) and isinstance(into.get(name), dict):
            _merge(into[name], value)
        elif isinstance(value, list) and name in {"containers", "initContainers"}:
            for each in value:
                [same] = [one for one in into[name] if one["name"] == each["name"]]
                _merge(same, each)
        else:
            into[name] = value
