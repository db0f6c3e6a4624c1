"""System checks that apps and commands register."""

import ast
from io import StringIO

import pytest
from django.core.checks.registry import registry
from django.core.management import call_command

from tests.lasting import reading


def written() -> set[str]:
    """The system checks of the code: functions that take the configurations of apps, or the alias of each database."""
    return {
        node.name
        for tree in reading.modules().values()
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
        and (
            "app_configs" in {each.arg for each in node.args.args}
            or "of_each_database" in map(ast.unparse, node.decorator_list)
        )
    }


@pytest.mark.parametrize("name", sorted(written()))
def test_an_app_registers_the_system_check(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    both = "registered_checks", "deployment_checks"
    for each in both:
        monkeypatch.setattr(registry, each, {*getattr(registry, each)})
    # It registers one more, and runs none.
    call_command("check", list_tags=True, stdout=StringIO())
    assert name in {check.__name__ for each in both for check in getattr(registry, each)}, name


def test_the_system_checks_are_found_in_the_code() -> None:
    assert len(written()) >= 8
