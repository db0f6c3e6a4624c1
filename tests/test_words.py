"""Plain English in the code: docstrings, comments and tests name their subject, and names use the field's terms."""

import ast
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from itertools import chain
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = (
    "config", "accounts", "licensing", "usage", "llmproxy", "releases", "telemetry", "tests", "docs",
)  # fmt: skip
# A docstring that begins so has no subject: *Returns whether …*, *The address of …* do. Ruff's D401 wants *Return*, and
# says nothing of classes and modules; third person is the habit here.
HEADLESS = re.compile(
    r"(What|Who|Whom|Whose|Whether|How|Where|When|Why|Which|Of|Has|Those)\b", re.IGNORECASE
)
# A comment that begins so has no subject either.
CLAUSE = re.compile(
    r"#\s*(What|Who|Whom|Whose|Whether|Which|Where|How|Why)(ever)?\b", re.IGNORECASE
)
# Things that cannot speak or know, doing so in a docstring: an address *contains*, a field *is*, an index *covers*.
SPEAKING = re.compile(
    r"\b(address|answer|body|call|charge|chunk|code|column|count|document|event|field|file|head|index|item|key|kind|"
    r"ledger|licence|limit|line|list|log|machine|mail|message|metric|name|night|notice|number|object|page|path|plan|"
    r"planner|problem|query|reason|record|refusal|registry|report|request|response|result|row|rule|run|schema|"
    r"sentence|session|setting|signature|statement|status|stream|sum|table|time|title|token|total|type|union|value|"
    r"variable|version|view|watch|word|``\w+``)(e?s)?\s+(asks?|tells?|says?|speaks?|knows?|hears?|wants?|flies|fly)\b"
)
METAPHORS = re.compile(r"\b(aboard|aftermath|anew|flights|lull|in vain)\b", re.IGNORECASE)
# Metaphors and small words for many ideas, in the names of the product's modules, classes and functions.
WORDS = {
    "aboard",
    "aftermath",
    "aside",
    "anew",
    "flight",
    "flights",
    "lull",
    "told",
    "vain",
    "whom",
}
WORD = re.compile(r"[A-Z]?[a-z]+")
# A test's name is a sentence of its own, not the rest of the one before.
CONTINUED = re.compile(
    r"test_(nor|neither|and|or|so|but|of|it|they|them|those|that|then|once|others_are|one_(that|who|whose|with)"
    r"|(what|who|whom|whose|which|where|whether|how|why)(ever)?)_"
)
# Exceptions by name, at most 20; one that is mended goes.
ALLOWED = {"0001_items_are_told"}


@cache
def files() -> tuple[Path, ...]:
    folders = ((ROOT / folder).rglob("*.py") for folder in FOLDERS)
    return (*ROOT.glob("*.py"), *chain(*folders))


def comments(path: Path) -> Iterator[str]:
    """The place and first line of each comment; comments on lines in a row are one."""
    last = 0
    with path.open("rb") as source:
        for token in tokenize.tokenize(source.readline):
            if token.type != tokenize.COMMENT:
                continue
            line, column = token.start
            alone = not token.line[:column].strip()
            if not (alone and line == last + 1):
                yield f"{path.relative_to(ROOT)}:{line}: {token.string}"
            last = line if alone else 0


@cache
def named() -> list[tuple[str, str, str]]:
    """The place, name and docstring of every module, class and function."""
    found = []
    for path in files():
        file = str(path.relative_to(ROOT))
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Module):
                found.append((file, path.stem, ast.get_docstring(node) or ""))
            elif isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                found.append((f"{file}:{node.name}", node.name, ast.get_docstring(node) or ""))
    return found


def test_every_docstring_names_its_subject_first() -> None:
    headless = {
        place
        for place, name, docstring in named()
        if name not in ALLOWED and HEADLESS.match(docstring)
    }
    assert headless == set()


def test_things_in_docstrings_neither_speak_nor_know() -> None:
    speaking = {
        f"{place}: {match[0]}"
        for place, name, docstring in named()
        if name not in ALLOWED
        for match in (*SPEAKING.finditer(docstring), *METAPHORS.finditer(docstring))
    }
    assert speaking == set()


def test_every_comment_names_its_subject_first() -> None:
    clauses = {
        each
        for path in files()
        if CLAUSE.search(path.read_text())
        for each in comments(path)
        if CLAUSE.match(each.partition(": ")[2]) and not each.endswith("?")
    }
    assert clauses == set()


def test_names_of_the_product_are_terms_of_the_field() -> None:
    assert len(ALLOWED) <= 20
    metaphors = {
        place
        for place, name, _ in named()
        if not place.startswith(("tests/", "docs/"))
        and name not in ALLOWED
        and WORDS & {each.lower() for each in WORD.findall(name)}
    }
    assert metaphors == set()


def test_names_of_tests_are_whole_sentences() -> None:
    continued = {place for place, name, _ in named() if ":" in place and CONTINUED.match(name)}
    assert continued == set()
