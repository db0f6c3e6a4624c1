"""Sizes and shape of what is committed; ``python -m tests.checks.figures [REVISION …]`` shows others beside it."""

import ast
import json
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

import grimp

from tests.test_words import HEADLESS
from tests.tools.folders import ROOT

APPS = ("accounts", "licensing", "usage", "llmproxy", "releases", "telemetry")
PRODUCT = ("config", *APPS)
DATA = {".csv", ".json", ".lock", ".mmd", ".ndjson", ".svg", ".txt"}
LINTED = (
    "source_modules",
    "forbidden_modules",
    "protected_modules",
    "allowed_importers",
    "layers",
    "ancestors",
)


def sources(root: Path, *folders: str) -> Iterator[Path]:
    return (path for folder in folders for path in (root / folder).rglob("*.py"))


def lines(paths: Iterator[Path]) -> int:
    return sum(path.read_bytes().count(b"\n") for path in paths)


def pages(root: Path) -> Iterator[Path]:
    """The files of config and of the apps' pages."""
    yield from sources(root, "config", *(f"{app}/admin" for app in APPS))
    yield from (path for app in APPS if (path := root / app / "admin.py").exists())


def data(root: Path) -> Iterator[Path]:
    return (path for path in root.rglob("*") if path.suffix in DATA)


def headless(root: Path) -> int:
    nodes = (
        node for path in sources(root, *PRODUCT) for node in ast.walk(ast.parse(path.read_text()))
    )
    documented = (
        ast.get_docstring(node) or ""
        for node in nodes
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
    )
    return sum(HEADLESS.match(each) is not None for each in documented)


def names_in_contracts(root: Path) -> int:
    linter = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["importlinter"]
    listed = [
        each
        for contract in linter["contracts"]
        for field in LINTED
        for each in contract.get(field, ())
    ]
    return sum(len(each.replace("|", ":").split(":")) for each in listed)


def graph(root: Path) -> grimp.ImportGraph:
    sys.path.insert(0, str(root))
    return grimp.build_graph(*PRODUCT, cache_dir=None)


def two_way_pairs(imports: grimp.ImportGraph) -> set[tuple[str, str]]:
    """The pairs of packages of which each imports the other."""
    packages = {name for name in imports.modules if imports.find_children(name)}

    def package_of(name: str) -> str:
        return name if name in packages else name.rpartition(".")[0]

    found = {
        (package_of(name), package_of(other))
        for name in imports.modules
        for other in imports.find_modules_directly_imported_by(name)
    }
    return {(one, other) for one, other in found if one < other and (other, one) in found}


def modules_that_import_apps(root: Path) -> int:
    imports = graph(root)
    return sum(
        any(other.startswith(APPS) for other in imports.find_modules_directly_imported_by(name))
        for name in imports.modules
        if name.startswith("config")
    )


FIGURES: Mapping[str, Callable[[Path], int]] = {
    "lines of the product, migrations included": lambda root: lines(sources(root, *PRODUCT)),
    "of these config": lambda root: lines(sources(root, "config")),
    "config and the apps' pages": lambda root: lines(pages(root)),
    "lines of tests": lambda root: lines(sources(root, "tests")),
    "lines of data, locks and drawings": lambda root: lines(data(root)),
    "modules of config that import apps": modules_that_import_apps,
    "names in import contracts": names_in_contracts,
    "packages that import each other, in pairs": lambda root: len(two_way_pairs(graph(root))),
    "docstrings of the product without a subject": headless,
    "words of the changelog": lambda root: len((root / "CHANGELOG.md").read_text().split()),
}


def figures(root: Path) -> dict[str, int]:
    """The figures of a tree, from a process of its own: what is imported stays imported."""
    command = [sys.executable, "-m", "tests.checks.figures", "--of", str(root)]
    asked = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    found: dict[str, int] = json.loads(asked.stdout)
    return found


def unpacked(revision: str, folder: str) -> Path:
    archive = subprocess.run(
        ["git", "archive", revision], cwd=ROOT, capture_output=True, check=True
    ).stdout
    with tarfile.open(fileobj=BytesIO(archive)) as tar:
        tar.extractall(folder, filter="data")
    return Path(folder)


def main(arguments: list[str]) -> None:
    if arguments[:1] == ["--of"]:
        root = Path(arguments[1])
        print(json.dumps({name: count(root) for name, count in FIGURES.items()}))
        return
    columns = {}
    for revision in (*arguments, "HEAD"):
        with tempfile.TemporaryDirectory() as folder:
            columns[revision] = figures(unpacked(revision, folder))
    show(columns)


def show(columns: Mapping[str, Mapping[str, Any]]) -> None:
    print(f"{'':<46}", *(f"{name:>12}" for name in columns))
    for name in FIGURES:
        print(f"{name:<46}", *(f"{column[name]:>12,}" for column in columns.values()))


if __name__ == "__main__":
    main(sys.argv[1:])
