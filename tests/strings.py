"""Every string that a person can read: pages of the console and of accounts, mails, problems.

``docs/strings.txt`` lists them by the file that they stand in, so that a change of words is seen in review. From
templates it takes the text between tags, a few attributes, and the words that tags and filters are given; from code,
what stands where labels, questions, sentences and errors are declared, and whatever else reads as a sentence; from
scripts, the labels that they set. ``{…}`` stands for a
value, and ``/`` between two texts of which one is shown.
"""

import ast
import re
from collections.abc import Iterable, Iterator
from html.parser import HTMLParser
from pathlib import Path

from django.template.base import Lexer, Token, TokenType

from tests.tools.folders import ROOT

APPS = ("config", "accounts", "licensing", "usage", "releases", "telemetry", "llmproxy")
# Tags within a sentence; any other ends it.
INLINE = {"a", "abbr", "b", "code", "em", "i", "kbd", "small", "span", "strong", "time", "u"}
ATTRIBUTES = {"alt", "aria-label", "data-label", "placeholder", "title"}
UNREAD = {"script", "style"}
QUOTED = re.compile(r'"([^"]*)"')
BETWEEN = {"else", "elif", "empty"}
# Tags whose quoted words nobody reads.
UNWORDED = ("extends", "load", "url", "static", "if", "elif", 'include "', "regroup")
VALUES = {"chip", "span", "to"}
# Filters of values whose arguments are shown, ``counted`` with an s after it.
WORDED = re.compile(r'\|(?:counted|default|default_if_none|yesno):"([^"]*)"')
# Labels that a script sets.
SET_BY_SCRIPT = re.compile(r'setAttribute\("aria-label", "([^"]*)"\)|textContent = "([^"]+)"')
# Keywords, class attributes and constants whose strings are read; ``choices`` are pairs of a value and its words.
PLACES = {
    "button", "default_detail", "description", "detail", "done", "empty", "follows", "groups", "heading", "help_text",
    "index_title", "label", "labels", "legend", "message", "note", "question", "search_help_text", "sentence",
    "site_header", "site_title", "step", "subject", "title", "verbose_name", "verbose_name_plural",
}  # fmt: skip
CHOICES = {"choices", "choices_of", "lookups"}
# Functions whose arguments people read, such as the labels of columns.
CALLS = {
    "Act",
    "Alert",
    "Chart",
    "Chip",
    "Column",
    "Finder",
    "Link",
    "Result",
    "SettingRow",
    "Strip",
    "chip",
    "counted",
}
# Columns of models, whose first argument is their label.
COLUMN = re.compile(r"models\.(?!OneTo|ManyTo)\w+Field\Z")
# Functions whose strings are written for machines or for the log.
UNHEARD = {
    "debug",
    "info",
    "warning",
    "error",
    "exception",
    "critical",
    "compile",
    "execute",
    "getLogger",
}
SENTENCE = re.compile(r"(?:[A-Z“][a-z’']*|\{[^}]*\}),? \S+ \S")
SQL = re.compile(
    r"\s*(?:SELECT|INSERT|UPDATE|DELETE|WITH|CREATE|ALTER|DROP|FROM|WHERE|SET|VALUES)\s"
)
# A phrase that a function returns.
WORDS = re.compile(r"[a-z]{2,} [a-z]")
# Names of values, variables, models and formats, and markup without words.
PLAIN = re.compile(r"(?:[a-z\d_.:/%*=-]*|[A-Z\d_%]*_[A-Z\d_]*|(?:[a-z]+\.[a-z]+ ?)+|%\S+)\Z|<|\{\}")


def written() -> str:
    parts = []
    scripts = sorted((ROOT / "config" / "static").rglob("*.js"))
    for path in [*sorted((ROOT / "templates").rglob("*.*")), *scripts, *sources()]:
        found = list(
            dict.fromkeys(each for each in strings_of(path) if re.search("[A-Za-z]", each))
        )
        if found:
            parts.append("\n".join([f"# {path.relative_to(ROOT)}", *found, ""]))
    return "\n".join(parts)


def sources() -> Iterator[Path]:
    for app in APPS:
        for path in sorted((ROOT / app).rglob("*.py")):
            if "migrations" not in path.parts:
                yield path


def strings_of(path: Path) -> Iterable[str]:
    text = path.read_text()
    if path.suffix == ".py":
        return of_code(ast.parse(text))
    if path.suffix == ".html":
        return of_page(text)
    if path.suffix == ".js":
        return of_script(text)
    return of_mail(text) if path.suffix == ".txt" else ()


def of_script(text: str) -> Iterable[str]:
    return ["".join(each) for each in SET_BY_SCRIPT.findall(text)]


class Page(HTMLParser):
    """Collects the sentences of a page and of its attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self._text: list[str] = []
        self._unread = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._unread += tag in UNREAD
        if tag not in INLINE:
            self.end()
        self.found += (
            said for name, value in attrs if name in ATTRIBUTES and (said := spaced(value or ""))
        )

    def handle_endtag(self, tag: str) -> None:
        self._unread -= tag in UNREAD
        if tag not in INLINE:
            self.end()

    def handle_data(self, data: str) -> None:
        if not self._unread:
            self._text.append(data)

    def end(self) -> None:
        if said := spaced("".join(self._text)):
            self.found.append(said)
        self._text = []


def of_page(source: str) -> list[str]:
    tokens = Lexer(source).tokenize()
    page = Page()
    page.feed("".join(map(shown, tokens)))
    page.close()
    page.end()
    tags = [token.contents for token in tokens if token.token_type == TokenType.BLOCK]
    given = [word for tag in tags if not tag.startswith(UNWORDED) for word in QUOTED.findall(tag)]
    values = [token.contents for token in tokens if token.token_type == TokenType.VAR]
    given += [word for each in values + tags for word in WORDED.findall(each) if word not in given]
    texts = [each for each in page.found if re.sub(r"\{[^}]*\}", "", each).strip(" ·/,.:()")]
    return texts + [word for word in given if word.strip() and not PLAIN.match(word)]


def of_mail(source: str) -> Iterator[str]:
    text = "".join(map(shown, Lexer(source).tokenize()))
    yield from filter(None, map(spaced, re.split(r"\n\s*\n", text)))


def shown(token: Token) -> str:
    """A token as it is listed: text as it is, a value by its name, and a sign between alternatives."""
    match token.token_type:
        case TokenType.TEXT:
            return token.contents
        case TokenType.VAR:
            return "{" + token.contents.partition("|")[0].replace('"', "") + "}"
        case TokenType.BLOCK if token.contents.split()[0] in BETWEEN:
            return " / "
        case TokenType.BLOCK if token.contents.split()[0] in VALUES:
            return "{…}"
    return ""


def spaced(text: str) -> str:
    return " ".join(text.split()).strip("/ ")


def of_code(module: ast.Module) -> Iterator[str]:
    """In the order of the code."""
    unread = {
        id(part)
        for node in ast.walk(module)
        for each in never_read(node)
        for part in ast.walk(each)
    }
    read = {
        id(part) for node in ast.walk(module) for each in declared(node) for part in ast.walk(each)
    }
    inner = {
        id(part)
        for node in ast.walk(module)
        if isinstance(node, ast.JoinedStr)
        for part in node.values
    }
    texts = [
        node
        for node in ast.walk(module)
        if isinstance(node, ast.Constant | ast.JoinedStr) and id(node) not in inner | unread
    ]
    for node in sorted(texts, key=lambda each: (each.lineno, each.col_offset)):
        said = spaced(text_of(node))
        if SQL.match(said):
            continue
        if SENTENCE.match(said) or (id(node) in read and not PLAIN.match(said)):
            yield said


def text_of(node: ast.AST) -> str:
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if not isinstance(node, ast.JoinedStr):
        return ""
    return "".join(
        str(part.value) if isinstance(part, ast.Constant) else "{…}" for part in node.values
    )


def declared(node: ast.AST) -> Iterator[ast.AST]:
    """The expressions below a node whose strings are read."""
    if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        names = {each.id.lower() for each in targets if isinstance(each, ast.Name)}
        if names & (PLACES | CHOICES):
            yield node.value
    elif isinstance(node, ast.Return | ast.Yield) and node.value is not None:
        yield from (each for each in ast.walk(node.value) if WORDS.search(text_of(each)))
    elif isinstance(node, ast.ClassDef) and "Choices" in ast.unparse(node)[:120].split(":")[0]:
        yield from node.body
    elif isinstance(node, ast.Call):
        if name_of(node.func) in CALLS:
            yield from node.args
        elif COLUMN.match(ast.unparse(node.func)):
            yield from node.args[:1]
        yield from (each.value for each in node.keywords if each.arg in PLACES | CHOICES)


def never_read(node: ast.AST) -> Iterator[ast.AST]:
    """Docstrings, and what is logged or compiled."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        yield node.value
    elif isinstance(node, ast.Call) and name_of(node.func) in UNHEARD:
        of_log = isinstance(node.func, ast.Attribute) and "messages" in ast.unparse(node.func.value)
        yield from () if of_log else node.args


def name_of(function: ast.expr) -> str:
    return str(getattr(function, "attr", getattr(function, "id", "")))
