"""Nodes with their relationships: missing ones are created, others are brought up to date.

What is there is read first; on a first load that is next to nothing. To create nodes together with the relationships
between them is faster than to look for each: no node has to be found by its key, no relationship is looked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from pag_graph.sinks.neo4j.model import create_together, keys_there
from pag_graph.sinks.neo4j.writer import Work

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pag_graph.sinks.neo4j.model import NodeTable, RelationshipTable
    from pag_graph.sinks.neo4j.writer import Writer


class Creation:
    """Nodes that are known not to be there, cut into stretches, each with the relationships that lie in it.

    Parameters
    ----------
    nodes
        Their table.
    rows
        One row per node, in an order that puts those together which relationships connect.
    relationships
        Tables that begin or end at these nodes, with one row per relationship. The other end is one of these nodes, or
        one of another label that is there.
    batch_rows
        Nodes of a stretch.
    """

    def __init__(
        self,
        nodes: NodeTable,
        rows: pl.DataFrame,
        relationships: Sequence[tuple[RelationshipTable, pl.DataFrame]],
        batch_rows: int,
    ) -> None:
        self.nodes, self.rows, self.batch_rows = nodes, rows, batch_rows
        self.created: list[pl.DataFrame] = []
        """Per table of relationships: the rows that are created here."""
        self.rest: list[tuple[RelationshipTable, pl.DataFrame]] = []
        """Per table of relationships: the rows that lie in no stretch."""
        self._inner: list[tuple[RelationshipTable, dict[int, pl.DataFrame]]] = []
        row = pl.int_range(pl.len())
        places = rows.select(*nodes.key, part=row // batch_rows, place=row % batch_rows)
        for table, frame in relationships:
            inner = self._placed(table, frame, places)
            columns = frame.columns
            self.created.append(inner.select(columns))
            lies_in_none = pl.int_range(frame.height, eager=True).is_in(inner["row"].implode()).not_()
            self.rest.append((table, frame.filter(lies_in_none)))
            self._inner.append((table, {int(part[0]): of_part for part, of_part in inner.group_by("part")}))

    def work(self, run_id: str) -> Iterator[Work]:
        """Give one piece of work per stretch; all have the same text, which the server plans once."""
        tables = [table for table, _ in self._inner]
        between = tuple(table for table in tables if _inside(table))
        text = create_together(self.nodes, between, tuple(table for table in tables if not _inside(table)))
        for part, rows in enumerate(self.rows.select(self.nodes.columns).iter_slices(self.batch_rows)):
            values: dict[str, Any] = {"run": run_id, **rows.to_dict(as_series=False)}
            size = rows.height
            for (table, by_part), created in zip(self._inner, self.created, strict=True):
                inner = by_part.get(part)
                size += 0 if inner is None else inner.height
                values |= _values(table, self.nodes, created.clear() if inner is None else inner)
            yield Work(text, values, size)

    def _placed(self, table: RelationshipTable, frame: pl.DataFrame, places: pl.DataFrame) -> pl.DataFrame:
        """Return the relationships that lie in a stretch: ``part``, ``from`` and ``to`` (places in it), and ``row``."""
        places_of = {"part": pl.Int64, "from": pl.Int64, "to": pl.Int64, "row": pl.Int64}
        if not (frame.height and places.height):
            return frame.clear().with_columns(pl.lit(None, kind).alias(name) for name, kind in places_of.items())
        inner = frame.with_columns(row=pl.int_range(pl.len()))
        key = list(self.nodes.key)
        ends = {"from": (table.source, table.source_columns), "to": (table.target, table.target_columns)}
        own_ends = {end: columns for end, (node, columns) in ends.items() if node.label == self.nodes.label}
        for end, columns in own_ends.items():
            of_end = places.rename({"part": f"{end}_part", "place": end})
            inner = inner.join(of_end, left_on=list(columns), right_on=key)
        first, *other_ends = own_ends
        inner = inner.filter(
            [pl.col(f"{first}_part") == pl.col(f"{end}_part") for end in other_ends] or [pl.lit(value=True)]
        )
        absent = [pl.lit(None, pl.Int64).alias(end) for end in ends if end not in own_ends]
        inner = inner.with_columns(*absent, part=f"{first}_part").select(*frame.columns, *places_of)
        if len(own_ends) == len(ends):
            return inner.sort("part", "from", "to")
        key_of_other = table.target_columns if "from" in own_ends else table.source_columns
        return inner.sort("part", *key_of_other, "row")


def bring(
    writer: Writer,
    nodes: NodeTable,
    rows: pl.DataFrame,
    relationships: Sequence[tuple[RelationshipTable, pl.DataFrame]],
    batch_rows: int,
    *,
    ask: bool = True,
) -> Iterator[Work]:
    """Give the work that adds nodes with their relationships, or brings them up to date.

    Parameters
    ----------
    writer
        Writes the run; asked at once what is there.
    nodes, rows, relationships, batch_rows
        As for `Creation`, whether they are there or not.
    ask
        Whether to ask what is there; else all is looked for as it is written.

    Yields
    ------
    Work
        To be done in this order. Where nothing else writes the run meanwhile, nothing is there twice afterwards;
        what is not asked for may be written by others, too.
    """
    if not ask:
        yield from writer.merges([(nodes, rows), *relationships], batch_rows)
        return
    known_rows = pl.Series(_rows_there(writer, nodes, rows, batch_rows), dtype=pl.Int64)
    is_there = pl.int_range(rows.height, eager=True).is_in(known_rows.implode())
    creation = Creation(nodes, rows.filter(~is_there), relationships, batch_rows)
    yield from creation.work(writer.run_id)
    yield from writer.merges([(nodes, rows.filter(is_there)), *creation.rest], batch_rows)


def _rows_there(writer: Writer, nodes: NodeTable, rows: pl.DataFrame, batch_rows: int) -> list[int]:
    """Return the places of the rows whose nodes are there."""
    places: list[int] = []
    for number, part in enumerate(rows.select(nodes.key).iter_slices(batch_rows)):
        records = writer.read(keys_there(nodes), {"run": writer.run_id, **part.to_dict(as_series=False)})
        places += [number * batch_rows + record["i"] for record in records]
    return places


def _inside(table: RelationshipTable) -> bool:
    return table.source.label == table.target.label


def _values(table: RelationshipTable, nodes: NodeTable, rows: pl.DataFrame) -> dict[str, Any]:
    """Return the parameters of `create_together` for the relationships of a stretch."""
    kind = table.type
    values: dict[str, Any] = {f"{kind}_{name}": rows[name].to_list() for name in table.columns}
    own_end = "from" if table.source.label == nodes.label else "to"
    if _inside(table):
        ends = ("from", "to")
        return values | {f"{kind}_{end}": rows[end].to_list() if end in rows.columns else [] for end in ends}
    values[f"{kind}_{own_end}"] = rows[own_end].to_list() if own_end in rows.columns else []
    columns, key = (
        (table.target_columns, table.target.key) if own_end == "from" else (table.source_columns, table.source.key)
    )
    # Numbered before they are grouped: in a group, numbers would begin anew.
    numbered = rows.select(columns).with_columns(number=pl.int_range(pl.len()))
    other_nodes = numbered.group_by(columns, maintain_order=True).agg(
        first=pl.col("number").min(), last=pl.col("number").max()
    )
    values |= {f"{kind}_other_{name}": other_nodes[column].to_list() for name, column in zip(key, columns, strict=True)}
    return values | {f"{kind}_{end}": other_nodes[end].to_list() for end in ("first", "last")}
