"""HTA's critical path: the graphs and paths that Holistic Trace Analysis itself made of two traces."""

from __future__ import annotations

import csv
import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest

from pag_graph.errors import InvalidParameterError
from pag_graph.sources.kineto.hta import HtaGraph, hta_graph

ORACLES = Path(os.environ.get("PAG_ORACLES", Path(__file__).parents[2].parent / "shared" / "oracles")) / "chrome"
ANNOTATION = "[param|pytorch.model.alex_net|0|0|0|measure|forward]"

pytestmark = [
    pytest.mark.oracle,
    pytest.mark.skipif(not ORACLES.is_dir(), reason=f"the oracles are not at {ORACLES}"),
]


def events_of(name: str) -> list[dict[str, Any]]:
    (file,) = (ORACLES / name).glob("*_trace.json.gz")
    events: list[dict[str, Any]] = json.loads(gzip.decompress(file.read_bytes()))["traceEvents"]
    return events


def graph_of(name: str, **options: bool) -> HtaGraph:
    return hta_graph(events_of(name), ANNOTATION, instance=1, **options)


def rows_of(name: str, table: str) -> list[dict[str, str]]:
    with (ORACLES / name / f"{name}.{table}.csv").open(encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


# HTA's option of launch edges without weight was on for one of them and off for the other.
@pytest.mark.parametrize(
    ("name", "launch_edges", "nodes", "edges", "steps"),
    [("simple_add", True, 458, 440, 315), ("alexnet", False, 462, 421, 149)],
)
def test_graph_and_path_are_those_of_hta(*, name: str, launch_edges: bool, nodes: int, edges: int, steps: int) -> None:
    graph = graph_of(name, launch_edges=launch_edges)
    assert (len(graph.nodes), len(graph.edges), len(graph.path)) == (nodes, edges, steps)
    expected = rows_of(name, "nodes")
    zero = graph.nodes[0].t - float(expected[0]["ts"])
    assert [(node.row, node.t - zero, node.is_start) for node in graph.nodes] == [
        (int(row["ev_idx"]), float(row["ts"]), row["is_start"] == "True") for row in expected
    ]
    assert sorted(graph.edges) == sorted(
        (int(row["begin"]), int(row["end"]), row["type"], float(row["weight"])) for row in rows_of(name, "edges")
    )
    assert graph.path == json.loads((ORACLES / name / f"{name}.path.json").read_text())


def test_launch_edges_without_weight_are_an_option() -> None:
    without = set(graph_of("simple_add", launch_edges=False).edges)
    more = set(graph_of("simple_add").edges) - without
    assert len(more) == 25
    assert {(edge.type, edge.weight) for edge in more} == {("KERNEL_LAUNCH_DELAY", 0)}


def test_an_annotation_that_is_not_there_is_an_error() -> None:
    with pytest.raises(InvalidParameterError, match=r"There are \d+ events whose names contain"):
        hta_graph(events_of("alexnet"), ANNOTATION, instance=99)
