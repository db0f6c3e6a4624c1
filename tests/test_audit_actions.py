"""Every act that the code writes into the audit log has a name in the grammar and is declared by an app."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.db import IntegrityError, transaction

from accounts.audit import Actor, record
from accounts.models import AuditEvent
from config.platform.acts import ACTS

ROOT = Path(__file__).resolve().parent.parent
APPS = ("accounts", "licensing", "usage", "llmproxy", "releases", "telemetry", "config")
GRAMMAR = re.compile(r"[a-z_]+:[a-z_]+")
Function = ast.FunctionDef | ast.AsyncFunctionDef


def modules() -> Iterator[tuple[str, ast.Module]]:
    for app in APPS:
        for path in sorted((ROOT / app).rglob("*.py")):
            if "migrations" not in path.parts:
                yield str(path.relative_to(ROOT)), ast.parse(path.read_text())


def called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def functions(tree: ast.Module) -> list[Function]:
    return [node for node in ast.walk(tree) if isinstance(node, Function)]


def action_of(node: ast.Call, place: int) -> ast.expr | None:
    named = (each.value for each in node.keywords if each.arg == "action")
    return node.args[place] if len(node.args) > place else next(named, None)


def recorders(tree: ast.Module) -> dict[str, int]:
    """The functions of a module that hand their own ``action`` on to be recorded, with the place they take it at.

    Their callers are looked at as well.
    """
    found = {"record": 0, "record_each": 0, "row_of": 0}
    while True:
        more = {
            function.name: [
                each.arg for each in (*function.args.args, *function.args.kwonlyargs)
            ].index("action")
            for function in functions(tree)
            for node in ast.walk(function)
            if isinstance(node, ast.Call) and called(node) in found
            if isinstance(given := action_of(node, found[called(node)]), ast.Name)
            if given.id == "action"
        }
        if more.keys() <= found.keys():
            return found
        found |= more


def literals(value: ast.expr | None, constants: dict[str, ast.expr]) -> list[str]:
    """The words that an expression can be; none where that cannot be told from reading it."""
    if isinstance(value, ast.Constant) and isinstance(value.value, str):
        return [value.value]
    if isinstance(value, ast.IfExp):
        either = literals(value.body, constants), literals(value.orelse, constants)
        return [*either[0], *either[1]] if all(either) else []
    if isinstance(value, ast.Name):
        return literals(constants.get(value.id), {})
    return []


def constants_of(tree: ast.Module) -> dict[str, ast.expr]:
    """Returns the values of a module's names; several may be named in one line."""
    found: dict[str, ast.expr] = {}
    for node in tree.body:
        if not isinstance(node, ast.Assign):
            continue
        target, value = node.targets[0], node.value
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            pairs = zip(target.elts, value.elts, strict=True)
        else:
            pairs = zip([target], [value], strict=True)
        found |= {name.id: each for name, each in pairs if isinstance(name, ast.Name)}
    return found


def actions() -> dict[str, str]:
    """Every action that the code can write, with a place that writes it."""
    found: dict[str, str] = {}
    for name, tree in modules():
        if name == "accounts/audit.py":
            continue
        known = recorders(tree)
        constants = constants_of(tree)
        hands_on = {
            id(node)
            for function in functions(tree)
            if function.name in known
            for node in ast.walk(function)
        }
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call) or called(node) not in known:
                continue
            given = action_of(node, known[called(node)])
            words, place = literals(given, constants), f"{name}:{node.lineno}"
            handed = id(node) in hands_on and isinstance(given, ast.Name) and given.id == "action"
            assert words or handed, f"{place}: name the act where it is recorded"
            found.update(dict.fromkeys(words, place))
    return found


def test_every_act_follows_the_grammar() -> None:
    found = actions()
    assert len(found) > 40
    assert [each for each in found if not GRAMMAR.fullmatch(each)] == []


def test_every_act_is_declared_and_no_other() -> None:
    found, declared = actions(), {act.action for act in ACTS}
    missing = {each: place for each, place in found.items() if each not in declared}
    assert missing == {}, "the module `acts` of an app declares each of these"
    # Triggers write of changes by hand.
    unwritten = {each for each in declared - found.keys() if not each.endswith("changed_by_hand")}
    assert unwritten == set(), "no code writes these"


def test_an_act_is_described_in_words() -> None:
    for act in list(ACTS):
        assert act.meaning
        assert act.sentence.format("x")


@pytest.mark.django_db
@pytest.mark.parametrize(
    "action",
    ["", "user", "user:", ":created", "User:created", "user:created:twice", "user created"],
)
def test_the_database_takes_no_other_grammar(action: str, by: Actor, now: object) -> None:
    with pytest.raises(IntegrityError), transaction.atomic():
        record(action, by=by, now=now)  # type: ignore[arg-type]
    assert not AuditEvent.objects.filter(action=action).exists()
