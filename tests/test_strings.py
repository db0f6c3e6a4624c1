"""The list of strings has what a person reads, whole sentences of it, and nothing that is written for machines."""

import ast

import pytest

from tests.strings import of_code, of_mail, of_page, of_script


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("<p>Signed in as <b>{{ user.email }}</b>.</p>", ["Signed in as {user.email}."]),
        ("<td>{% if a %}yes{% else %}no{% endif %}</td>", ["yes / no"]),
        ("<p>The budget of {% to row %} is spent.</p>", ["The budget of {…} is spent."]),
        ('<a title="Until {{ at|instant }}">Go</a>', ["Until {at}", "Go"]),
        ('{% include "x.html" with word="Rolling out" %}<i class="Big One"></i>', []),
        ('{% chip "well" "Offered" %}', ["Offered"]),
        ("{# A comment. #}<script>Let it be</script><style>P A</style>", []),
        ("<p>{{ count }} · {{ name }}</p>", []),
        ('<p>{{ each|yesno:"Sent now,Not sent" }}</p>', ["Sent now,Not sent"]),
        ('<dd>{{ row.name|default:"not linked" }}</dd>', ["not linked"]),
    ],
)
def test_a_page_is_read_as_its_reader_does(source: str, found: list[str]) -> None:
    assert of_page(source) == found


def test_a_mail_is_read_by_paragraphs() -> None:
    assert [*of_mail("{{ by }} made\nyou one.\n\nHello,\n")] == ["{by} made you one.", "Hello,"]


def test_a_script_is_read_for_its_labels() -> None:
    assert of_script('one.setAttribute("aria-label", "Copy"); one.id = "two three";') == ["Copy"]


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ('class A:\n    """A docstring of it."""\n    label = "Revoke key"', ["Revoke key"]),
        ('raise Refused(f"The model {name} is off.")', ["The model {…} is off."]),
        ('def effects():\n    yield f"{name} is removed."', ["{…} is removed."]),
        ('def state():\n    return "not sent" if one else "lost"', ["not sent"]),
        ('log.warning("A line for the log alone.")', []),
        ('messages.warning(request, "Sign in once more.")', ["Sign in once more."]),
        ('choices = (("a", "Active"), ("b", "Gone"))', ["Active", "Gone"]),
        ('Column("Share", "number")', ["Share"]),
        ('Finder("Calls", 30, Call, by_id, "Call, End", end_of)', ["Calls", "Call, End"]),
        ('on = models.BooleanField("on top", default=False)', ["on top"]),
        ('cursor.execute("SELECT one FROM two")', []),
        ('NAME = "llm.user"', []),
    ],
)
def test_code_is_read_where_it_speaks_to_people(source: str, found: list[str]) -> None:
    assert [*of_code(ast.parse(source))] == found
