"""Reads from the code the texts that calls are given, where no registry has them."""

import ast
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from typing import NamedTuple

from tests.tools.folders import ROOT

OURS = ("accounts", "config", "licensing", "llmproxy", "releases", "telemetry", "usage")
# A name, and a name within it, which may be empty.
Part = tuple[str, str]
# Importing it makes gevent patch this process.
SERVING = "config.gunicorn"


class Place(NamedTuple):
    """A node of a module, and the function that it is in."""

    module: str
    node: ast.AST
    function: ast.AST | None


@cache
def modules() -> dict[str, ast.Module]:
    """Every module of the service but its migrations, by its dotted name."""
    found = {}
    for app in OURS:
        for path in sorted((ROOT / app).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            if "migrations" not in parts:
                name = ".".join(part for part in parts if part != "__init__")
                found[name] = ast.parse(path.read_text())
    return found


def places(is_wanted: Callable[[ast.AST], bool]) -> Iterator[Place]:
    for module, tree in modules().items():
        inside = {
            id(node): function
            for function in ast.walk(tree)
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
            for node in ast.walk(function)
        }
        for node in ast.walk(tree):
            if is_wanted(node):
                yield Place(module, node, inside.get(id(node)))


def calls(*names: str) -> Iterator[tuple[Place, ast.Call]]:
    """The calls of functions and methods of these names."""
    for place in places(lambda node: isinstance(node, ast.Call) and called(node) in names):
        assert isinstance(place.node, ast.Call)
        yield place, place.node


def called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def argument(node: ast.Call, name: str, position: int | None = None) -> ast.expr | None:
    named = next((each.value for each in node.keywords if each.arg == name), None)
    if named is None and position is not None and len(node.args) > position:
        return node.args[position]
    return named


def text(node: ast.AST | None, place: Place) -> str | None:
    """The text of an expression, with ``{}`` for parts known only at run time; None where all of it is."""
    if isinstance(node, ast.JoinedStr):
        return "".join(text(each, place) or "{}" for each in node.values)
    if isinstance(node, ast.FormattedValue):
        return text(node.value, place)
    if isinstance(node, ast.Constant):
        value = node.value
    elif isinstance(node, ast.Name | ast.Attribute):
        value = _named(node, place)
    elif isinstance(node, ast.Call):
        return _returned(node, place)
    else:
        return None
    if isinstance(value, bytes):
        return value.decode().replace("\0", "\\0")
    return value if isinstance(value, str) else None


def texts(node: ast.AST | None, place: Place) -> Iterator[str]:
    """The texts that an expression can be."""
    either = [node.body, node.orelse] if isinstance(node, ast.IfExp) else [node]
    yield from filter(None, (text(each, place) for each in either))


def _named(node: ast.Name | ast.Attribute, place: Place) -> object:
    """The value of a name of the function, or of the module."""
    given = assigned(node, place)
    return value_of(node, place.module) if given is None else text(given, place)


def assigned(name: ast.expr, place: Place) -> ast.expr | None:
    """The values that the function gives a name; several may be named in one line."""
    for each in ast.walk(place.function) if place.function else ():
        if isinstance(each, ast.Assign):
            target, value = each.targets[0], each.value
            pairs = [(target, value)]
            if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
                pairs = list(zip(target.elts, value.elts, strict=True))
            for one, other in pairs:
                if ast.unparse(one) == ast.unparse(name):
                    return other
    return None


def _returned(node: ast.Call, place: Place) -> str | None:
    """The text that a function of the same module makes of its first argument."""
    tree = modules()[place.module]
    for function in tree.body:
        if isinstance(function, ast.FunctionDef) and function.name == called(node):
            last = function.body[-1]
            if isinstance(last, ast.Return) and isinstance(last.value, ast.JoinedStr):
                inner = Place(place.module, last, function)
                first = node.args and text(node.args[0], place)
                return str(text(last.value, inner)).replace("{}", first or "{}", 1)
    return None


def value_of(node: ast.expr, module: str) -> object:
    """The value of an expression in a module; None for one known only at run time."""
    if module == SERVING:
        return None
    try:
        code = compile(ast.Expression(node), module, "eval")
        return eval(code, vars(import_module(module)))
    except (NameError, AttributeError):
        return None
