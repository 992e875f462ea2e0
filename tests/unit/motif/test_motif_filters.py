"""The filter language: values, types, nulls, and where errors point."""

from __future__ import annotations

import re
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pag_graph.errors import MotifSyntaxError
from pag_graph.motif.conditions import written
from pag_graph.motif.filters import check, parse_filter
from pag_graph.motif.polars_conditions import to_polars

COLUMNS = {
    "e": {"x": pa.int64(), "y": pa.int32(), "f": pa.float64(), "t": pa.string(), "b": pa.bool_()},
    "a": {"id": pa.int64()},
}
MOST, LEAST = 2**63 - 1, -(2**63)


def value(text: str, **row: Any) -> Any:
    """Compute an expression over one row; what is not given is null."""
    types = {"x": pl.Int64, "y": pl.Int32, "f": pl.Float64, "t": pl.String, "b": pl.Boolean}
    frame = pl.DataFrame({name: [row.get(name)] for name in types}, schema=types)
    whole = {"x", "y"}
    node = parse_filter(text)
    return frame.select(
        answer=to_polars(node, lambda column: pl.col(column.name), lambda column: column.name in whole)
    ).item()


@pytest.mark.parametrize(
    ("text", "row", "expected"),
    [
        ("e.x + e.y * 2 - 1", {"x": 1, "y": 3}, 6),
        ("(e.x + e.y) * 2", {"x": 1, "y": 3}, 8),
        ("-e.x + 1", {"x": 5}, -4),
        ("- - e.x", {"x": 5}, 5),
        ("e.x - e.y - 1", {"x": 9, "y": 3}, 5),
        ("e.x / 4", {"x": 6}, 1.5),
        ("e.x / 0", {"x": 6}, None),
        ("e.x % 3", {"x": -7}, -1),
        ("e.x % -3", {"x": 7}, 1),
        ("e.x % 0", {"x": 7}, None),
        ("e.x % 3", {}, None),
        ("abs(e.x - e.y)", {"x": 2, "y": 9}, 7),
        ("abs(e.f)", {"f": -0.5}, 0.5),
        # Nothing wraps around: what leaves 64 bits is null.
        ("e.x + 1", {"x": MOST}, None),
        ("e.x - 1", {"x": LEAST}, None),
        ("e.x * 2", {"x": 2**62}, None),
        ("abs(e.x)", {"x": LEAST}, None),
        ("-e.x", {"x": LEAST}, None),
        ("e.y + 1", {"y": 2**31 - 1}, 2**31),
        ("e.x * e.y", {"x": 3 * 10**9, "y": 2 * 10**9}, 6 * 10**18),
        ("ns(7) + us(2) + ms(3) + s(1)", {}, 1_003_002_007),
        ("us(1.5)", {}, 1500),
        ("e.x = 1 and e.y = 2", {"x": 0}, False),
        ("e.x = 1 and e.y = 2", {"x": 1}, None),
        ("e.x = 1 or e.y = 2", {"x": 1}, True),
        ("e.x = 1 or e.y = 2", {"x": 0}, None),
        ("not e.x = 1", {}, None),
        ("not e.x = 1 or true", {}, True),
        ("e.x in (1, 2, 3)", {"x": 2}, True),
        ("e.x not in (1, 2, 3)", {"x": 4}, True),
        ("e.x not in (1, 2, 3)", {}, None),
        ("e.x in (us(1), -1)", {"x": 1000}, True),
        ("e.x in (1.5, 2)", {"x": 2}, True),
        ("e.x between 1 and 3 and e.y = 1", {"x": 3, "y": 1}, True),
        ("e.x not between 1 and 3", {"x": 3}, False),
        ("e.x between 3 and 1", {"x": 2}, False),
        ("e.x is null", {}, True),
        ("e.x is not null", {}, False),
        ("not e.x is null", {"x": 1}, True),
        ("e.t = 'it''s'", {"t": "it's"}, True),
        ("e.t < 'b'", {"t": "a"}, True),
        ("e.t in ('waiting', 'idle')", {"t": "idle"}, True),
        ("e.b and not e.b = false", {"b": True}, True),
        ("null and false", {}, False),
        ("e.x > e.f", {"x": 2, "f": 1.5}, True),
        ("e.x >= 1e0", {"x": 1}, True),
        ("e.x <> 1 AND e.x != 1 And not (e.x == 1)", {"x": 2}, True),
        # "and" binds more tightly than "or", "not" more tightly than both.
        ("true or true and false", {}, True),
        ("not false and false", {}, False),
    ],
)
def test_values(text: str, row: dict[str, Any], expected: Any) -> None:
    found = value(text, **row)
    assert found == expected
    assert type(found) is type(expected)
    # What people read means the same.
    if "ns(" not in text and "us(" not in text:
        assert value(written(parse_filter(text)), **row) == expected


@pytest.mark.parametrize(
    ("text", "at", "problem"),
    [
        ("", 0, "ends too early"),
        ("e.x >", 5, "ends too early"),
        ("e.x = 1 e.y = 2", 8, "should end here"),
        ("e.x = 'waiting", 6, "This text has no end"),
        ('e.t = "waiting"', 6, "has no meaning"),
        ("(e.x = 1", 8, "not closed"),
        ("e = 1", 0, "alone is no value"),
        ("e. = 1", 3, "the name of a column"),
        ("e.x < 1 < 2", 8, "cannot be chained"),
        ("e.x is 1", 7, "null or not null"),
        ("e.x not 1", 8, "followed by in or between"),
        ("e.x in 1", 7, "a list in parentheses"),
        ("e.x in (e.y)", 8, "constants only"),
        ("e.x in (1, null)", 11, "constants only"),
        ("e.x between 1 or 2", 14, "two bounds"),
        ("log(e.x) = 1", 0, "no function 'log'"),
        ("ms(e.x) = 1", 0, "takes a constant number"),
        ("us(0.0001) = e.x", 0, "no whole number of nanoseconds"),
        ("s(10000000000) = e.x", 0, "does not fit in 64 bits"),
        # Neither of these is a whole number, and Python makes none of them.
        ("s(1e300) = e.x", 0, "does not fit in 64 bits"),
        ("e.x = ms(-1e308)", 6, "does not fit in 64 bits"),
        # Whatever reads a tree goes down level by level.
        ("(" * 5000 + "e.b" + ")" * 5000, 61, "More than 60 parts lie inside each other"),
        ("not " * 5000 + "e.b", 244, "More than 60 parts lie inside each other"),
        ("e.x > " + "- " * 5000 + "e.x", 128, "More than 60 parts lie inside each other"),
        ("e.x > " + "abs(" * 5000 + "e.x" + ")" * 5000, 250, "More than 60 parts lie inside each other"),
        ("not (" * 5000 + "e.b" + ")" * 5000, 154, "More than 60 parts lie inside each other"),
        (" or ".join(["e.b"] * 5000), 34990, "At most 400 operators may follow each other"),
        ("e.x = " + "+".join(["e.x"] * 5000), 4, "At most 400 operators may follow each other"),
        (f"e.x = {2**63}", 6, "does not fit in 64 bits"),
        ("e.x = 1e999", 6, "too large"),
        ("e.x = " + "9" * 5000, 6, "does not fit in 64 bits"),
        ("e.x = $p", 6, "$p has no value"),
        ("e.x ? 1", 4, "has no meaning"),
        ("e.x = 1;drop table", 7, "has no meaning"),
    ],
)
def test_what_is_no_filter_is_pointed_at(text: str, at: int, problem: str) -> None:
    with pytest.raises(MotifSyntaxError, match=re.escape(problem)) as raised:
        parse_filter(text)
    assert raised.value.context["position"] == at


@pytest.mark.parametrize(
    ("text", "at", "problem"),
    [
        ("e.x", 0, "this is a number"),
        ("e.t", 0, "this is text"),
        ("z.x = 1", 0, "no element 'z'; it has e, a"),
        ("e.z = 1", 0, "'e' has no column 'z'"),
        ("e.t > 1", 4, "Text cannot be compared with a number"),
        ("e.x = 'one'", 4, "A number cannot be compared with text"),
        ("e.x = null", 4, "never true"),
        ("e.t + 1 = 2", 0, "+ needs a number, and this is text"),
        ("e.x and e.b", 0, "and needs a condition"),
        ("not e.x", 4, "not needs a condition"),
        ("e.x in (1, 'a')", 11, "no such thing"),
        ("e.b > true", 4, "no order"),
        ("abs(e.t) = 1", 4, "abs needs a number"),
    ],
)
def test_what_does_not_fit_the_columns_is_pointed_at(text: str, at: int, problem: str) -> None:
    with pytest.raises(MotifSyntaxError, match=re.escape(problem)) as raised:
        check(parse_filter(text), text, COLUMNS)
    assert raised.value.context["position"] == at


def test_near_names_are_suggested() -> None:
    with pytest.raises(MotifSyntaxError, match=r"'e' has no column 'duration'") as raised:
        check(parse_filter("e.duration > 1"), "e.duration > 1", {"e": {"duration_ns": pa.int64()}})
    assert "Did you mean e.duration_ns?" in str(raised.value)


def test_a_parameter_is_a_value_and_never_text() -> None:
    evil = "' or true or e.t = '"
    node = parse_filter("e.t = $word", {"word": evil})
    frame = pl.DataFrame({"t": ["a", evil]})
    kept = frame.filter(to_polars(node, lambda column: pl.col(column.name), lambda _: False))
    assert kept["t"].to_list() == [evil]


def test_filters_may_be_long_and_nested() -> None:
    assert value("(" * 60 + "e.b" + ")" * 60, b=True)
    assert value(" or ".join(f"e.x = {number}" for number in range(400)), x=399)


def test_a_parameter_that_is_no_number_of_nanoseconds_is_an_error() -> None:
    for odd in (float("nan"), float("inf")):
        with pytest.raises(MotifSyntaxError, match="does not fit in 64 bits"):
            parse_filter("e.x > ms($x)", {"x": odd})


@given(st.text(alphabet="e.xtyb()+-*/%<>=! ,'$01aindorbetwls", max_size=40))
def test_whatever_is_written_is_read_or_refused(text: str) -> None:
    try:
        check(parse_filter(text), text, COLUMNS)
    except MotifSyntaxError as error:
        position = error.context["position"]
    else:
        return
    assert 0 <= position <= len(text)
