"""Tests depend on facts: one that measures time is marked ``wall_time``, and `make test` runs it alone."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
CLOCKS = {"monotonic", "perf_counter", "process_time", "thread_time"}
MARKER = "wall_time"
Function = ast.FunctionDef | ast.AsyncFunctionDef


def test_tests_that_measure_time_are_marked() -> None:
    unmarked = [
        f"{path.relative_to(TESTS)}: {name}"
        for path in TESTS.rglob("test_*.py")
        for name in measuring(path.read_text())
    ]
    assert unmarked == []


@pytest.mark.parametrize(
    "sample",
    [
        "def test_a():\n began = time.monotonic()\n f()\n assert time.monotonic() - began < 1",
        "def test_a():\n end = monotonic() + 5\n while monotonic() < end: f()",
        "def test_a():\n def f():\n  return perf_counter() - self.began\n assert f()",
        "def f():\n return time.perf_counter() - 1.0\ndef g():\n f()\ndef test_a():\n g()",
        "class Watch:\n def took(self):\n  return monotonic() - self.began\ndef test_a():\n Watch()",
        "@pytest.fixture\ndef took():\n yield lambda: monotonic() - 1\ndef test_a(took):\n took()",
        "def test_a():\n began = time.thread_time()\n assert time.thread_time() - began < 1",
        "class TestA:\n @pytest.mark.full\n def test_a(self):\n  assert monotonic() < 3",
    ],
)
def test_measuring_is_found_in_every_shape(sample: str) -> None:
    assert measuring(sample) == ["test_a"]
    assert measuring(f"pytestmark = [pytest.mark.{MARKER}]\n{sample}") == []


@pytest.mark.parametrize(
    "sample",
    [
        f"@pytest.mark.{MARKER}\ndef test_a():\n assert monotonic() < 3",
        "def test_a():\n ask(deadline=time.monotonic() + 60)",
        "def f():\n return monotonic() - 1\ndef test_a():\n pass",
    ],
)
def test_a_marked_test_or_a_moment_that_is_handed_in_is_none(sample: str) -> None:
    assert measuring(sample) == []


def measuring(source: str) -> list[str]:
    """The tests of a module that measure time, themselves or by what else stands in it, and are not marked."""
    module = ast.parse(source)
    if any(MARKER in ast.unparse(node) for node in module.body if isinstance(node, ast.Assign)):
        return []
    parts = {node.name: node for node in module.body if isinstance(node, Function | ast.ClassDef)}
    found = {name for name, node in parts.items() if measures(node)}
    while more := {name for name in {*parts} - found if found & names(parts[name])}:
        found |= more
    return [test.name for test in unmarked_tests(module) if measures(test) or found & names(test)]


def unmarked_tests(module: ast.Module) -> Iterator[Function]:
    """The tests that are not marked, within classes too."""
    for node in module.body:
        for each in [node, *(node.body if isinstance(node, ast.ClassDef) else [])]:
            is_test = isinstance(each, Function) and each.name.startswith("test_")
            if is_test and not any(MARKER in ast.unparse(mark) for mark in each.decorator_list):
                yield each


def measures(node: ast.AST) -> bool:
    """Returns whether clock readings are compared or subtracted."""
    return any(
        reads(each)
        for each in ast.walk(node)
        if isinstance(each, ast.Compare)
        or (isinstance(each, ast.BinOp) and isinstance(each.op, ast.Sub))
    )


def reads(node: ast.AST) -> bool:
    called = (each.func for each in ast.walk(node) if isinstance(each, ast.Call))
    return any((getattr(f, "attr", None) or getattr(f, "id", None)) in CLOCKS for f in called)


def names(node: ast.AST) -> set[str]:
    """The names that a function or class uses, fixtures included."""
    used = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
    return used | {each.arg for each in ast.walk(node) if isinstance(each, ast.arg)}
