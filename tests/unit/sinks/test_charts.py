"""Pictures of rows: what is drawn is what the rows say, whatever the names are."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pag_graph.analyses import ANALYSES, Chart
from pag_graph.formats.svg import ticks
from pag_graph.sinks.charts import draw

SVG = "{http://www.w3.org/2000/svg}"
BARS = Chart(kind="bars", x=("key",), y=("path_ns",))


def shapes(picture: str, name: str) -> list[ET.Element]:
    return list(ET.fromstring(picture).iter(f"{SVG}{name}"))


def titled(picture: str) -> dict[str, ET.Element]:
    """Shapes with a tooltip, by it."""
    return {
        title.text or "": shape
        for shape in ET.fromstring(picture).iter()
        if (title := shape.find(f"{SVG}title")) is not None
    }


def texts(picture: str) -> list[str]:
    return ["".join(text.itertext()) for text in shapes(picture, "text")]


def test_bars_are_as_long_as_what_they_measure() -> None:
    rows = [{"key": name, "path_ns": ns} for name, ns in (("a", 3_000), ("b", 1_000), ("c", 6_000))]
    drawn = titled(draw(BARS, rows, title="profile, epoch 4"))
    widths = {name: float(shape.get("width") or 0) for name, shape in drawn.items() if shape.tag == f"{SVG}rect"}
    assert list(widths) == ["c, path 6.0 us", "a, path 3.0 us", "b, path 1.0 us"]
    assert widths["c, path 6.0 us"] == pytest.approx(2 * widths["a, path 3.0 us"], abs=0.2)
    assert widths["c, path 6.0 us"] == pytest.approx(6 * widths["b, path 1.0 us"], abs=0.6)
    picture = draw(BARS, rows, title="profile, epoch 4")
    assert texts(picture)[0] == "profile, epoch 4"
    assert {"path", "a", "b", "c", "6.0 us"} <= set(texts(picture))


def test_bars_are_stacked_and_the_rest_is_summed_up() -> None:
    chart = Chart(kind="bars", x=("hop",), y=("walk_ns",), colour=("type",))
    rows = [{"hop": hop, "type": kind, "walk_ns": hop} for hop in (2, 1) for kind in ("busy", "gc")]
    drawn = [name for name, shape in titled(draw(chart, rows, title="t")).items() if shape.tag == f"{SVG}rect"]
    assert drawn == ["hop 1, busy, walk 1 ns", "hop 1, gc, walk 1 ns", "hop 2, busy, walk 2 ns", "hop 2, gc, walk 2 ns"]
    many = [{"key": f"k{number:02}", "path_ns": 100 - number} for number in range(40)]
    picture = draw(BARS, many, title="t")
    assert f"(24 others), path {sum(100 - n for n in range(16, 40)) / 1000:.1f} us" in titled(picture)


def test_negative_bars_go_to_the_left() -> None:
    chart = Chart(kind="bars", x=("key",), y=("difference_ns",))
    drawn = titled(draw(chart, [{"key": "a", "difference_ns": 50}, {"key": "b", "difference_ns": -100}], title="t"))
    more, less = drawn["a, difference 50 ns"], drawn["b, difference -100 ns"]
    zero = float(more.get("x") or 0)
    assert float(less.get("x") or 0) + float(less.get("width") or 0) == pytest.approx(zero, abs=0.2)


def test_a_waterfall_leads_from_one_sum_to_the_other() -> None:
    chart = Chart(kind="waterfall", x=("key",), y=("difference_ns",), ends=("before_ns", "after_ns"))
    changes = {"a": 3_000, "b": -5_000, "c": 0}
    rows = [
        {"key": key, "difference_ns": change, "before_ns": 10_000, "after_ns": 10_000 + change}
        for key, change in changes.items()
    ]
    drawn = titled(draw(chart, rows, title="t"))
    assert list(drawn) == ["before, 30.0 us", "b, -5.0 us", "a, +3.0 us", "c, 0 ns", "after, 28.0 us"]
    places = []
    for group in drawn.values():
        (bar,) = group.iter(f"{SVG}rect")
        left = float(bar.get("x") or 0)
        places.append((left, left + float(bar.get("width") or 0)))
    (start, before), less, more, same, (_, after) = places
    # Each begins where the one before it has ended, all at one scale.
    assert less[1] == pytest.approx(before, abs=0.2)
    assert more[0] == pytest.approx(less[0], abs=0.2)
    assert same[0] == pytest.approx(more[1], abs=0.2)
    assert after == pytest.approx(same[0], abs=0.2)
    assert (less[1] - less[0]) / (more[1] - more[0]) == pytest.approx(5 / 3, abs=0.05)
    # The sums are far from 0, and the axis says that it is too.
    assert start == pytest.approx(places[-1][0], abs=0.2)
    assert any(words.startswith("the axis begins at ") for words in texts(draw(chart, rows, title="t")))


def test_intervals_are_drawn_around_estimates() -> None:
    chart = Chart(kind="bars", x=("key",), y=("estimate",), interval=("low", "high"), unit="unit", panel="by")
    rows = [
        {"by": "type", "key": "busy", "unit": "share", "estimate": 0.5, "low": 0.4, "high": 0.6},
        {"by": "length", "key": "mean", "unit": "ns", "estimate": 2e6, "low": None, "high": None},
    ]
    picture = draw(chart, rows, title="t")
    assert len(shapes(picture, "path")) == 1
    assert {"50 %", "2.00 ms", "by type", "by length"} <= set(texts(picture))


def test_what_is_not_known_of_a_pair_is_not_drawn_as_nothing() -> None:
    chart = Chart(kind="matrix", x=("to_worker",), y=("from_worker",), value="records")
    values: list[tuple[int, int, int | None]] = [(0, 1, None), (1, 0, 5), (1, 0, None), (1, 2, 0), (2, 1, None)]
    rows = [{"from_worker": a, "to_worker": b, "records": value} for a, b, value in values]
    picture = draw(chart, rows, title="t")
    said = {title for title in titled(picture) if title.startswith("from worker")}
    assert {title for title in said if not title.endswith(": 0")} == {
        "from worker 0, to worker 1: not known",
        "from worker 1, to worker 0: 5",
        "from worker 2, to worker 1: not known",
    }
    assert len(said) == 9
    assert texts(picture).count("?") == 2


def test_a_matrix_shows_every_pair_once() -> None:
    chart = Chart(kind="matrix", x=("to_worker",), y=("from_worker",), value="records")
    rows = [{"from_worker": a, "to_worker": 0, "records": 10 * a} for a in (1, 2)] + [
        {"from_worker": 1, "to_worker": 0, "records": 5},
        {"from_worker": None, "to_worker": 0, "records": 5},
    ]
    drawn = titled(draw(chart, rows, title="t"))
    assert len(drawn) == 9
    assert {"from worker 1, to worker 0: 15", "from worker 2, to worker 0: 20", "from worker 0, to worker 1: 0"} <= set(
        drawn
    )


def test_lines_pass_through_their_points() -> None:
    chart = Chart(kind="lines", x=("virtual_speedup_percent",), y=("saved_percent",), colour=("operator", "worker"))
    rows = [
        {"virtual_speedup_percent": float(x), "saved_percent": x / 2, "operator": 7, "worker": None}
        for x in (0, 50, 100)
    ] + [{"virtual_speedup_percent": float(x), "saved_percent": 0.0, "operator": None, "worker": 1} for x in (0, 100)]
    picture = draw(chart, rows, title="t", labels={7: "Map (0.4)"})
    assert len(shapes(picture, "polyline")) == 2
    assert "Map (0.4): 25 % at virtual speedup 50 %" in titled(picture)
    assert {"Map (0.4)", "worker 1", "virtual speedup", "saved"} <= set(texts(picture))


names = st.text(max_size=30)


@given(st.lists(st.tuples(names, st.integers(-(2**40), 2**40)), max_size=30))
def test_any_name_and_number_gives_a_document(rows: list[tuple[str, int]]) -> None:
    """It parses, loads nothing, and every length is a finite number."""
    for chart in (BARS, Chart(kind="bars", x=("key",), y=("path_ns",), colour=("key",))):
        picture = draw(chart, [{"key": name, "path_ns": ns} for name, ns in rows], title="a <b> & c")
        root = ET.fromstring(picture)
        assert not [name for shape in root.iter() for name in shape.attrib if "href" in name]
        assert "nan" not in re.sub(r"<(title|text)[^>]*>[^<]*</\1>", "", picture).lower()
        assert root.find(f"{SVG}text").text == "a <b> & c"  # type: ignore[union-attr]


@given(st.floats(-1e12, 1e12), st.floats(0, 1e12))
def test_ticks_are_few_round_and_inside(low: float, more: float) -> None:
    high = low + more
    places = ticks(low, high)
    assert len(places) <= 14
    spread = abs(low) + abs(high)
    assert all(low - 1e-9 * spread <= tick <= high + 1e-9 * spread for tick in places)


def test_no_rows_are_said_to_be_none() -> None:
    for analysis in ANALYSES:
        if analysis.chart is not None and analysis.chart.kind != "timeline":
            assert "no rows" in texts(draw(analysis.chart, [], title="t"))
