"""What is created together is what was given: each relationship once, between its own ends, with its own properties."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from pag_graph import api, samples
from pag_graph.sinks.neo4j.content import Reader
from pag_graph.sinks.neo4j.creation import Creation
from pag_graph.sinks.neo4j.detail import Detail
from pag_graph.sinks.neo4j.model import CONTAINS_STEP, RELEASED, SEGMENT, SNAPSHOT, SPENT, STEP, THEN

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pag_graph.sinks.neo4j.content import Content
    from pag_graph.sinks.neo4j.model import NodeTable, RelationshipTable


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> Content:
    store = tmp_path_factory.mktemp("creation") / "skewed"
    api.build(samples.path("skewed"), store, engine="local")
    run = api.open(store).run
    return Reader(run).read(run.windows(), Detail.FULL)


def ends_of(values: Mapping[str, Any], nodes: NodeTable, table: RelationshipTable) -> list[tuple[Any, ...]]:
    """Return what the query makes of its parameters: both keys and the properties of each relationship."""
    kind, made = table.type, []
    key = list(zip(*(values[name] for name in nodes.key), strict=True))
    properties = [tuple(values[f"{kind}_{name}"][row] for name in table.columns) for row in range(_rows(values, kind))]
    if table.source.label == table.target.label:
        ends = zip(values[f"{kind}_from"], values[f"{kind}_to"], strict=True)
        return [(*key[a], *key[b], *rest) for (a, b), rest in zip(ends, properties, strict=True)]
    forward = table.source.label == nodes.label
    other = table.target if forward else table.source
    others = zip(*(values[f"{kind}_other_{name}"] for name in other.key), strict=True)
    places = values[f"{kind}_from" if forward else f"{kind}_to"]
    for far, first, last in zip(others, values[f"{kind}_first"], values[f"{kind}_last"], strict=True):
        for row in range(first, last + 1):
            near = key[places[row]]
            made.append((*near, *far, *properties[row]) if forward else (*far, *near, *properties[row]))
    return made


def _rows(values: Mapping[str, Any], kind: str) -> int:
    return len(values.get(f"{kind}_from", values.get(f"{kind}_to", [])))


@pytest.mark.parametrize("batch_rows", [1, 7, 10**6])
@pytest.mark.parametrize("name", ["segments", "snapshots", "steps"])
def test_every_relationship_is_created_or_left_to_be_merged(content: Content, batch_rows: int, name: str) -> None:
    nodes, rows, relationships = {
        "segments": (
            SEGMENT,
            content.segments.sort("start_ns", "id"),
            [(THEN, content.then), (RELEASED, content.released)],
        ),
        "snapshots": (SNAPSHOT, content.snapshots, [(SPENT, content.spent)]),
        "steps": (STEP, content.steps, [(CONTAINS_STEP, content.steps)]),
    }[name]
    creation = Creation(nodes, rows, relationships, batch_rows)
    work = list(creation.work("r"))
    assert len({piece.text for piece in work}) == 1
    created = [row for piece in work for row in zip(*(piece.parameters[key] for key in nodes.columns), strict=True)]
    assert created == rows.select(nodes.columns).rows()
    for table, frame in relationships:
        columns = [*table.source_columns, *table.target_columns, *table.columns]
        exprs = [pl.col(column).alias(str(place)) for place, column in enumerate(columns)]
        rest = {each.type: left for each, left in creation.rest}[table.type]
        made = [row for piece in work for row in ends_of(piece.parameters, nodes, table)]
        assert sorted([*made, *rest.select(exprs).rows()], key=repr) == sorted(frame.select(exprs).rows(), key=repr)
        if batch_rows == 10**6:
            assert not rest.height
