"""The edges of a run's last epochs, as far as a motif needs them, while epochs come and go."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import polars as pl

from pag_graph.motif.changes import MARK, Changes
from pag_graph.motif.conditions import columns_of
from pag_graph.motif.plan import ID, Join
from pag_graph.motif.planner import make_plan
from pag_graph.motif.polars_conditions import all_of
from pag_graph.motif.shape import PAG_SHAPE
from pag_graph.motif.store import edges_of, ends_of
from pag_graph.motif.syntax import Edge

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from pag_graph.graph.run import Run
    from pag_graph.motif.query import Question

EPOCH = "epoch"
_PLACE = ("src", "dst", EPOCH, "src_epoch", "start_ns", "duration_ns")
"""Columns of edges that say where it lies; those of its ends are read off them."""


class LastEdges:
    """Edges of some epochs and their ends, and how matches change when epochs come and go.

    Parameters
    ----------
    question
        As for `Changes`.
    """

    def __init__(self, question: Question) -> None:
        self._question, self._changes = question, Changes(question=question)
        self.epochs: list[int] = []
        """The epochs, ascending."""
        self._edges, self._vertices = (
            pl.DataFrame(pl.from_arrow(schema.empty_table())).select(columns)
            for schema, columns in (
                (PAG_SHAPE.edges, self._edge_columns),
                (PAG_SHAPE.vertices, self._vertex_columns),
            )
        )

    def begin(self, run: Run, epochs: Sequence[int]) -> None:
        """Take up the edges of epochs that were there before, in place of those that it has.

        Parameters
        ----------
        run
            The run, which has them.
        epochs
            The epochs, ascending; none lets go of all edges.
        """
        self.epochs = list(epochs)
        self._edges, self._vertices = self._read(run, epochs)

    def move(self, run: Run, came: Sequence[int], gone: Collection[int] = ()) -> pl.DataFrame:
        """Take up the edges of some epochs, and let go of those of others.

        Parameters
        ----------
        run
            The run, which has the edges of `came`.
        came
            Epochs that come, ascending, after all that are there.
        gone
            Epochs that go.

        Returns
        -------
        DataFrame
            What `Changes.find` returns. O(edges of these epochs), and a look at those that stay.
        """
        new_edges, new_vertices = self._read(run, came)
        mark = pl.when(pl.col(EPOCH).is_in(sorted(gone))).then(-1).otherwise(0).cast(pl.Int64)
        before = self._edges.with_columns(mark.alias(MARK))
        edges = pl.concat([before, new_edges.with_columns(pl.lit(1, pl.Int64).alias(MARK))])
        vertices = pl.concat([self._vertices, new_vertices]).unique(ID)
        found = self._changes.find(edges, vertices)
        self.epochs = [epoch for epoch in (*self.epochs, *came) if epoch not in gone]
        self._edges = edges.filter(pl.col(MARK) >= 0).drop(MARK)
        ends = pl.concat([self._edges["src"], self._edges["dst"]]).unique()
        self._vertices = vertices.filter(pl.col(ID).is_in(ends.implode()))
        return found

    def _read(self, run: Run, epochs: Sequence[int]) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Return the edges of some epochs that can be part of a match, and their ends."""
        if not epochs:
            return self._edges.clear(), self._vertices.clear()
        rows = edges_of(run, epochs)
        edges = (rows if self._possible is None else rows.filter(self._possible)).select(self._edge_columns).collect()
        return edges, ends_of(run, edges, self._vertex_columns)

    @cached_property
    def _possible(self) -> pl.Expr | None:
        """Say of an edge whether it can be part of a match; None where any can."""
        question = self._question
        plan = make_plan(question.motif, question.condition, question.shape, columns=question.columns)
        scans = [step.scan for step in plan.steps if isinstance(step, Join) and step.scan.is_edge]
        if self.negates or not all(scan.where for scan in scans):
            return None
        return pl.any_horizontal(all_of(scan, question.shape.edges) for scan in scans)

    @cached_property
    def negates(self) -> bool:
        """Whether the motif has edges that must not be there."""
        return any(isinstance(term, Edge) and term.negated for term in self._question.motif.terms)

    @cached_property
    def _used(self) -> set[tuple[str, str]]:
        """Elements and columns that the question speaks of."""
        question = self._question
        conditions = () if question.condition is None else columns_of(question.condition)
        asked = (text.partition(".") for text in question.columns or ())
        return {*((column.element, column.name) for column in conditions), *((name, part) for name, _, part in asked)}

    @cached_property
    def _edge_columns(self) -> list[str]:
        edges = self._question.motif.edges
        used = {column for name, column in self._used if name in edges}
        return [name for name in PAG_SHAPE.edges.names if name in {*_PLACE, *used}]

    @cached_property
    def _vertex_columns(self) -> list[str]:
        edges = self._question.motif.edges
        used = {column for name, column in self._used if name not in edges}
        return [name for name in PAG_SHAPE.vertices.names if name in {ID, *used}]
