"""Charts: what they draw, and that all of it can be read without the picture."""

import re
from datetime import date, timedelta
from xml.etree import ElementTree as ET

import pytest
from django.template.loader import render_to_string

from config.console.charts import Bar, Chart, Curve, Strip, days_axis, written
from config.platform.money import DOLLAR
from tests.pairing import each_once


def bars(*values: int, kind: str = "first") -> list[Bar]:
    return [
        Bar(f"{day} Nov", value, f"/calls?day={day}", f"{day} Nov: {value}", kind=kind)
        for day, value in enumerate(values, 1)
    ]


def drawn(chart: Chart) -> str:
    return render_to_string("admin/parts/chart.html", {"chart": chart})


def test_bars_start_at_zero_and_are_as_high_as_their_values() -> None:
    strip = Strip(bars(0, 30, 60), unit="calls", height=100)
    assert strip.ticks == [(100.0, "0"), (50.0, "30"), (0.0, "60")]
    found = list(strip.drawn(4))
    assert [(y, high) for _, y, _, high, _ in found] == [(50.0, 50.0), (0.0, 100.0)]
    assert [x for x, *_ in found] == [28.0, 53.0]


def test_times_are_in_the_unit_that_they_need() -> None:
    assert [written(each, "time") for each in (0, 500, 1_500, 60_000)] == [
        "0",
        "500 ms",
        "1.5 s",
        "60 s",
    ]


def test_a_forecast_stands_on_what_there_is() -> None:
    bar = Bar("23 Nov", 4 * DOLLAR, forecast=2 * DOLLAR)
    found = list(Strip([bar], height=60).drawn(1))
    assert [(y, high, kind) for _, y, _, high, kind in found] == [
        (20.0, 40.0, "first"),
        (0.0, 20.0, "forecast"),
    ]


@pytest.mark.parametrize(
    ("value", "unit"),
    each_once([0, 1, 2, 3, 9, 10, 11, 99, 101, 610, 6_001, 10**15], ["money", "tokens", "calls"]),
)
def test_a_scale_holds_its_bars_and_half_of_it_is_whole(value: int, unit: str) -> None:
    top = Strip(bars(value), unit=unit).top
    assert top >= value
    assert top % 2 == 0


def test_a_cap_belongs_to_the_scale() -> None:
    strip = Curve(
        bars(100 * DOLLAR), line=(500 * DOLLAR, "$500 budget"), end=(700 * DOLLAR, "$700 forecast")
    )
    assert strip.top == 1_000 * DOLLAR
    assert list(strip.names) == [
        (42.0, "$500 budget", "cap"),
        (25.2, "$700 forecast", "end"),
    ]


def test_a_curve_begins_at_zero_and_ends_where_its_days_do() -> None:
    curve = Curve(bars(1 * DOLLAR, 2 * DOLLAR), height=100)
    assert list(curve.drawn(4)) == [(0.0, 100.0), (25.0, 50.0), (50.0, 0.0)]


def test_days_are_named_by_weeks_and_today() -> None:
    days = [date(2026, 11, 1) + timedelta(days=after) for after in range(30)]
    words = [word for word in days_axis(days, today=date(2026, 11, 23)) if word]
    assert words == ["1 Nov", "8", "15", "today", "30"]
    assert [word for word in days_axis(days) if word] == ["1 Nov", "8", "15", "22", "30"]


def test_every_bar_has_its_link_title_and_row_in_the_table() -> None:
    errors = Strip(bars(0, 1, 2, kind="errors"), unit="calls", name="Errors")
    chart = Chart("Calls <b>", [Strip(bars(5, 6, 7), unit="calls"), errors], ["1 Nov", "", "3"])
    html = drawn(chart)
    assert "<b>" not in html
    for day, (calls, failed) in enumerate(((5, 0), (6, 1), (7, 2)), 1):
        assert f"<title>{day} Nov: {calls}</title>" in html
        assert html.count(f'href="/calls?day={day}"') == 2
        row = html[html.index('<th scope="row">') :].split("<tr>")[day - 1]
        assert re.findall(r'<td class="number">(.*?)</td>', row) == [str(calls), str(failed)]
    assert re.findall(r'<th scope="col" class="number">(.*?)</th>', html) == ["Calls", "Errors"]
    assert 'fill="url(#hatch-calls-b)"' in html


def test_a_picture_has_a_name_and_neither_style_nor_script() -> None:
    curve = Curve(bars(1, 2), line=(9 * DOLLAR, "$9 budget"), end=(3, "$3"))
    html = drawn(Chart("Spent this month", [curve, Strip(bars(1, 2))], ["1 Nov", "2", ""]))
    assert 'role="img" aria-labelledby="drawn-spent-this-month"' in html
    assert '<title id="drawn-spent-this-month">Spent this month</title>' in html
    assert not re.search(r"<style|<script|style=|\son\w+=", html)
    # Well-formed: every part is closed, in order.
    ET.fromstring(html)


def test_its_links_are_reached_by_keyboard_in_the_table_alone() -> None:
    picture, table = drawn(Chart("Calls", [Strip(bars(1, 2), unit="calls")], ["1", ""])).split(
        "<details"
    )
    assert picture.count("<a ") == picture.count('tabindex="-1"') == 2
    assert "tabindex" not in table


def test_money_is_written_with_the_cents_it_needs() -> None:
    assert [written(each, "money") for each in (0, 600 * DOLLAR, 1_234_567, 1_234)] == [
        "$0",
        "$600",
        "$1.23",
        "$0.0012",
    ]
