"""Architecture beyond import contracts: foreign keys, reverse accessors, names of rooms, signals, imports
in functions, and whose view sets these are."""

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path

import grimp
import pytest
from django.apps import apps
from django.db import models
from django.db.migrations.loader import MigrationLoader

from tests.checks.figures import two_way_pairs

ROOT = Path(__file__).resolve().parent.parent
FLOORS = {"accounts": 0, "licensing": 1, "usage": 2, "releases": 2, "telemetry": 2, "llmproxy": 3}
# Packages that import each other; docs/adr/0072-config-in-three-storeys.md gives the reason of each.
TWO_WAY = {
    ("accounts", "accounts.models"),
    ("llmproxy.dialects", "llmproxy.dialects.anthropic"),
    ("llmproxy.dialects", "llmproxy.dialects.openai"),
    ("usage", "usage.spending"),
}
SHELVES = {
    "services",
    "utils",
    "helpers",
    "common",
    "signals",
    "constants",
    "exceptions",
    "selectors",
    "misc",
}


def sources() -> Iterator[Path]:
    for app in ("config", *FLOORS):
        for path in sorted((ROOT / app).rglob("*.py")):
            if "migrations" not in path.parts:
                yield path


def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


# Of releases that users have; a migration never changes.
SEVERAL_STEPS = {("usage", 23)}


def test_a_migration_without_a_transaction_is_one_step() -> None:
    """``migrate`` tries again where a table was in use, and would find the steps that had been done."""
    found = {
        (label, int(name[:4]))
        for (label, name), each in MigrationLoader(None).disk_migrations.items()
        if label in FLOORS and not each.atomic and len(each.operations) > 1
    }
    assert found == SEVERAL_STEPS


def test_every_pattern_of_an_import_contract_matches() -> None:
    """A pattern that matches nothing guards nothing."""
    graph = grimp.build_graph("config", *FLOORS, include_external_packages=True, cache_dir=None)
    linter = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    for contract in linter["contracts"]:
        for field in (
            "source_modules",
            "forbidden_modules",
            "protected_modules",
            "allowed_importers",
        ):
            for pattern in contract.get(field, ()):
                assert graph.find_matching_modules(pattern), f"{contract['name']}: {pattern}"


def test_packages_import_each_other_in_known_pairs_only() -> None:
    """The contract of siblings does not compare an app's own modules with its rooms."""
    assert two_way_pairs(grimp.build_graph("config", *FLOORS, cache_dir=None)) == TWO_WAY


def test_foreign_keys_point_downwards() -> None:
    for model in apps.get_models():
        floor = FLOORS.get(model._meta.app_label)
        if floor is None:
            continue
        for field in model._meta.get_fields():
            if isinstance(field, models.ForeignKey | models.ManyToManyField):
                other = field.related_model._meta.app_label
                assert FLOORS.get(other, -1) <= floor, (
                    f"{model.__name__}.{field.name} points up to {other}"
                )
                same = other == model._meta.app_label
                assert same or FLOORS.get(other, -1) < floor, (
                    f"{model.__name__}.{field.name} points sideways"
                )


def reverse_accessors() -> dict[str, int]:
    """Accessor names that a foreign key of another app adds, with the floor they come from."""
    found: dict[str, int] = {}
    for model in apps.get_models():
        floor = FLOORS.get(model._meta.app_label)
        for field in model._meta.get_fields():
            if (
                floor is not None
                and isinstance(field, models.ForeignKey | models.ManyToManyField)
                and field.related_model._meta.app_label != model._meta.app_label
            ):
                found[field.remote_field.get_accessor_name() or ""] = floor
    return found


def test_reverse_accessors_are_used_from_above_only() -> None:
    accessors = reverse_accessors()
    for path in sources():
        floor = FLOORS.get(path.relative_to(ROOT).parts[0])
        if floor is None:
            continue
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.Attribute) and node.attr in accessors:
                # A dotted module name (usage.caps) is an import, which the contracts see to.
                assert floor >= accessors[node.attr], (
                    f"{path.name}:{node.lineno} uses .{node.attr} from below"
                )


def test_no_module_is_a_shelf() -> None:
    named = {path.stem for path in sources()} | {path.parent.name for path in sources()}
    assert not named & SHELVES


def test_nothing_is_imported_inside_a_function_and_nothing_listens_to_signals() -> None:
    for path in sources():
        tree = parsed(path)
        for function in ast.walk(tree):
            if isinstance(function, ast.FunctionDef):
                inside = [
                    node
                    for node in ast.walk(function)
                    if isinstance(node, ast.Import | ast.ImportFrom)
                ]
                assert not inside, (
                    f"{path.relative_to(ROOT)}:{function.lineno} imports inside {function.name}"
                )
        used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        assert "receiver" not in used, f"{path.relative_to(ROOT)} listens to a signal"


@pytest.mark.parametrize("model", [m for m in apps.get_models() if m._meta.app_label in FLOORS])
def test_every_model_says_what_it_is_and_how_it_is_ordered(model: type[models.Model]) -> None:
    assert model._meta.ordering, f"{model.__name__} has no stable order"
    assert "__str__" in model.__dict__, f"{model.__name__} does not say what it is"
    assert (model.__doc__ or "").strip()
    assert not (model.__doc__ or "").startswith(f"{model.__name__}(")


def test_nothing_vanishes_with_a_row_of_another_app_but_what_belongs_to_a_person_or_client() -> (
    None
):
    for model in apps.get_models():
        for field in model._meta.get_fields():
            if (
                model._meta.app_label in FLOORS
                and isinstance(field, models.ForeignKey)
                and field.remote_field.on_delete is models.CASCADE
                and field.related_model._meta.app_label != model._meta.app_label
            ):
                owner = field.related_model.__name__
                assert owner in {"User", "Client"}, f"{model.__name__} would vanish with a {owner}"
