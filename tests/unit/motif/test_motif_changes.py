"""Changes of matches: what edges that come and go change is what a search by hand finds, less what it found before."""

from __future__ import annotations

import os
from collections import Counter
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from pag_graph.errors import MotifSyntaxError, UnsupportedPlanError
from pag_graph.model.ids import POSITION_BITS
from pag_graph.motif.changes import DIFF, MARK, Changes, check_changes
from pag_graph.motif.query import ask
from pag_graph.motif.shape import PAG_SHAPE
from pag_graph.motif.syntax import parse_motif
from tests.support.motif_search import Row, as_networkx, in_order, motifs, search

if TYPE_CHECKING:
    from collections.abc import Callable

PROVE = os.environ.get("PAG_PROVE") == "1"

MOTIFS: list[tuple[str, str | None, Callable[[Row], bool]]] = [
    ("(a)-[e]->(b)", "e.duration_ns > 0", lambda row: row["e"]["duration_ns"] > 0),
    (
        "(a)-[e]->(b); (c)-[f]->(b)",
        "e.duration_ns <= f.duration_ns",
        lambda row: row["e"]["duration_ns"] <= row["f"]["duration_ns"],
    ),
    (
        "(a)-[e]->(b); (c)-[f]->(d)",
        "e.type = 'busy' and f.type != 'busy' and b.worker = d.worker and a.segment = c.segment",
        lambda row: (
            row["e"]["type"] == "busy" != row["f"]["type"]
            and row["b"]["worker"] == row["d"]["worker"]
            and row["a"]["segment"] == row["c"]["segment"]
        ),
    ),
    ("(a)-[e]->(b); (b)-[]->(c); (c)-[g]->(a)", None, lambda _: True),
    ("(a)-[e]->(b); (b)-[]->(); (b)-[]->()", None, lambda _: True),
    ("(a)-[e]->(b); ()-[f]->()", None, lambda _: True),
    ("(a)-[e]->(b); !(b)-[]->(a)", None, lambda _: True),
    ("(a)-[e]->(b); !(b)-[]->()", "a.t_ns < b.t_ns", lambda row: row["a"]["t_ns"] < row["b"]["t_ns"]),
    ("(a)-[e]->(b); (b)-[]->(); !()-[]->(a); (a)-[f]->(c)", None, lambda _: True),
    ("(a)-[e]->(b); (c)-[f]->(d); !(a)-[]->(d); !(d)-[]->(a)", None, lambda _: True),
    ("(a)-[e]->(b); ()-[f]->(); !(b)-[]->(a)", None, lambda _: True),
]


@st.composite
def graphs(draw: st.DrawFn) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Draw a graph of few vertices, and which of its edges came, went, and stayed."""
    number = st.integers(0, 3)
    vertices = [
        {
            "id": (worker << POSITION_BITS) + 2 + place,
            "worker": worker,
            "pos": 2 + place,
            "epoch": draw(number),
            "t_ns": draw(number),
            "kind": "start",
            "segment": draw(st.integers(0, 1)),
        }
        for worker in range(2)
        for place in range(draw(st.integers(1, 3)))
    ]
    end = st.sampled_from(vertices)
    keys = draw(
        st.lists(
            st.tuples(end, end, st.sampled_from(["busy", "waiting"])),
            max_size=10,
            unique_by=lambda key: (key[0]["id"], key[1]["id"], key[2]),
        )
    )
    edges = [
        {
            "src": src["id"],
            "dst": dst["id"],
            "type": kind,
            "epoch": dst["epoch"],
            "src_epoch": src["epoch"],
            "start_ns": src["t_ns"],
            "duration_ns": dst["t_ns"] - src["t_ns"],
            "flags": 0,
            "alternatives": 0,
            MARK: draw(st.integers(-1, 1)),
        }
        for src, dst, kind in keys
    ]
    marked = PAG_SHAPE.edges.append(pa.field(MARK, pa.int64()))
    return frame(vertices, PAG_SHAPE.vertices), frame(edges, marked)


def frame(rows: list[dict[str, Any]], schema: pa.Schema) -> pl.DataFrame:
    return pl.DataFrame(pl.from_arrow(pa.Table.from_pylist(rows, schema)))


def counted(vertices: pl.DataFrame, edges: pl.DataFrame, motif: str, holds: Callable[[Row], bool]) -> Counter[str]:
    """Count the matches that a search by hand finds."""
    rows = search(as_networkx(vertices, edges), parse_motif(motif))
    return Counter(str(sorted(key_of(name, part) for name, part in row.items())) for row in rows if holds(row))


def key_of(name: str, part: dict[str, Any]) -> tuple[Any, ...]:
    return (name, part["id"]) if "id" in part else (name, part["src"], part["dst"], part["type"])


def found(vertices: pl.DataFrame, edges: pl.DataFrame, motif: str, where: str | None) -> Counter[str]:
    """Count the changes; those that cancel out are none."""
    parsed = parse_motif(motif)
    keys = {name: PAG_SHAPE.edge_key if name in parsed.edges else ("id",) for name in parsed.columns}
    columns = [f"{name}.{key}" for name, parts in keys.items() for key in parts]
    rows = Changes(question=ask(motif, where, PAG_SHAPE, columns=columns)).find(edges, vertices)
    assert rows.columns == [*columns, DIFF]
    changes: Counter[str] = Counter()
    for row in rows.iter_rows(named=True):
        parts = [(name, *(row[f"{name}.{key}"] for key in parts)) for name, parts in keys.items()]
        changes[str(sorted(parts))] += row[DIFF]
    return changes


def check(vertices: pl.DataFrame, edges: pl.DataFrame, motif: str, where: str | None, holds: Any) -> None:
    before, now = (counted(vertices, edges.filter(pl.col(MARK) != sign).drop(MARK), motif, holds) for sign in (1, -1))
    expected = now.copy()
    expected.subtract(before)
    changes = found(vertices, edges, motif, where)
    assert {key: diff for key, diff in changes.items() if diff} == {key: diff for key, diff in expected.items() if diff}


@pytest.mark.parametrize(("motif", "where", "holds"), MOTIFS, ids=[motif for motif, _, _ in MOTIFS])
def test_changes_are_what_two_searches_by_hand_differ_in(
    motif: str, where: str | None, holds: Callable[[Row], bool]
) -> None:
    @settings(max_examples=500 if PROVE else 5, deadline=None)
    @given(graphs())
    def holds_of(graph: tuple[pl.DataFrame, pl.DataFrame]) -> None:
        check(*graph, motif, where, holds)

    holds_of()


@settings(max_examples=3_000 if PROVE else 12, deadline=None)
@given(graphs(), motifs().filter(lambda text: in_order(parse_motif(text))))
def test_changes_of_any_motif(graph: tuple[pl.DataFrame, pl.DataFrame], motif: str) -> None:
    try:
        check_changes(parse_motif(motif))
    except (UnsupportedPlanError, MotifSyntaxError):
        assume(condition=False)
    check(*graph, motif, None, lambda _: True)


def test_each_changed_match_is_found_once() -> None:
    # Three edges that all came make one match of the three that are one after the other, and every edge was new.
    ids = [2, 3, 4, 5]
    vertices = frame(
        [{"id": i, "worker": 0, "pos": i, "epoch": 0, "t_ns": i, "kind": "start", "segment": 0} for i in ids],
        PAG_SHAPE.vertices,
    )
    edges = [
        {"src": i, "dst": i + 1, "type": "busy", "epoch": 0, "src_epoch": 0, "start_ns": i, "duration_ns": 1}
        | {"flags": 0, "alternatives": 0, MARK: 1}
        for i in ids[:-1]
    ]
    marked = frame(edges, PAG_SHAPE.edges.append(pa.field(MARK, pa.int64())))
    changes = found(vertices, marked, "(a)-[e]->(b)-[f]->(c)-[g]->(d)", None)
    assert list(changes.values()) == [1]


@pytest.mark.parametrize(
    ("motif", "problem"),
    [
        ("(a)", "(a) can be any vertex"),
        ("(a)-[e]->(b); !(b)-[]->(c)", "(c) can be any vertex"),
        ("(a)-[]->(b)", "No edge of (a)-[]->(b) has a name"),
    ],
)
def test_motifs_that_are_not_made_of_edges_are_refused(motif: str, problem: str) -> None:
    with pytest.raises(UnsupportedPlanError) as caught:
        check_changes(parse_motif(motif))
    assert problem in str(caught.value)
