"""How the matches of a motif change when edges come and go, without finding those again that stay.

A match changes if one of its edges came or went. So the motif is looked for once per edge of its own: this edge must be
one that came or went, those before it must have stayed, and those after it may be of either kind. That finds each
changed match once, and begins with the few edges that changed.

A negated edge takes matches away when it comes, and gives them back when it goes. Where a motif has any, such searches
only tell near which vertices matches may have changed; there the motif is looked for among the edges before and those
afterwards. Matches elsewhere are the same in both.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa

from pag_graph.errors import UnsupportedPlanError
from pag_graph.motif.conditions import Binary, Column, Literal, Node
from pag_graph.motif.plan import DST, ID, SRC, Join, Plan
from pag_graph.motif.polars_conditions import all_of
from pag_graph.motif.polars_query import Graph, MotifQuery
from pag_graph.motif.shape import PAG_SHAPE
from pag_graph.motif.syntax import Edge, Motif, must_exist

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pag_graph.motif.query import Question

MARK, DIFF = "mark", "diff"
_SHAPE = replace(PAG_SHAPE, edges=PAG_SHAPE.edges.append(pa.field(MARK, pa.int64(), nullable=False)))
_STAYED = Literal(0)
_MORE = 2
"""A plan is made anew where there are so many times more or fewer edges than it was made for."""


def check_changes(motif: Motif) -> None:
    """Refuse motifs whose matches are not made of edges alone.

    Raises
    ------
    UnsupportedPlanError
        If no edge has a name, or a vertex is no end of an edge that must be there.
    """
    ends = {name for edge in motif.edges.values() for name in (edge.src, edge.dst)}
    alone = [name for name in motif.vertices if must_exist(name) and name not in ends]
    if alone:
        message = f"({alone[0]}) can be any vertex, so every commit would have to look at all vertices."
        raise UnsupportedPlanError(message, "Give it an edge that must be there; in a negated edge, write ().")
    if not any(edge.named for edge in motif.edges.values()):
        message = f"No edge of {motif} has a name, so nothing says which epoch a match belongs to."
        raise UnsupportedPlanError(message, "Name an edge: (a)-[e]->(b).")


def flat(matches: pl.DataFrame, columns: Sequence[str]) -> pl.DataFrame:
    """Return some columns of an answer side by side.

    Parameters
    ----------
    matches
        One row per match, a struct per element that has a name.
    columns
        Which ones, as ``element.column``.

    Returns
    -------
    DataFrame
        The same rows, with columns called so, in this order.
    """
    parts = {text: text.partition(".") for text in columns}
    return matches.select(pl.col(name).struct.field(column).alias(text) for text, (name, _, column) in parts.items())


@dataclass(kw_only=True)
class _Search:
    """A question about edges with a `MARK` that is asked again and again."""

    question: Question
    changed: str = ""
    """The edge that must have changed."""
    plan: Plan | None = None
    edges: int = 0
    """How many edges there were when the plan was made."""

    def found(self, edges: pl.DataFrame, vertices: pl.DataFrame) -> pl.DataFrame:
        """Return the columns that are asked for, of all matches."""
        graph = Graph(vertices=vertices.lazy(), edges=edges.lazy(), shape=_SHAPE)
        query = MotifQuery(question=self.question, graph=graph)
        if self.plan is not None and edges.height < _MORE * self.edges and self.edges < _MORE * edges.height:
            query.plan = self.plan
        else:
            self.plan, self.edges = query.plan, edges.height
        return flat(query.frame(), self.question.columns or ())

    @property
    def possible(self) -> pl.Expr:
        """Whether there is a row that can be the edge that must have changed."""
        steps = () if self.plan is None else self.plan.steps
        scans = [step.scan for step in steps if isinstance(step, Join) and step.scan.element == self.changed]
        return all_of(scans[0], _SHAPE.edges).any() if scans else pl.lit(value=True)


@dataclass(frozen=True, kw_only=True)
class Changes:
    """Finds changes of the matches of one motif."""

    question: Question
    """About a graph of `PAG_SHAPE`; its motif passed `check_changes`, and its columns are given in full."""

    def find(self, edges: pl.DataFrame, vertices: pl.DataFrame) -> pl.DataFrame:
        """Return the matches that came or went with edges.

        Parameters
        ----------
        edges
            Edges that were there before or are there now, with the columns that the question speaks of, and ``mark``:
            1 of those that came, -1 of those that went, 0 of the others.
        vertices
            All ends of these edges, with the columns that the question speaks of.

        Returns
        -------
        DataFrame
            The columns that the question asks for, called ``element.column``, and ``diff``: 1 of a match that is there
            now and was not before, -1 of the other way round.
        """
        if self._negates:
            return self._found_nearby(edges, vertices)
        columns = self.question.columns or ()
        parts = [
            matches.select(*columns, pl.col(_mark_of(changed)).alias(DIFF))
            for changed, matches in self._changed(edges, vertices)
        ]
        return pl.concat([self._nothing, *parts])

    @cached_property
    def _negates(self) -> bool:
        return any(isinstance(term, Edge) and term.negated for term in self.question.motif.terms)

    @cached_property
    def _nothing(self) -> pl.DataFrame:
        """A change less."""
        motif, shape = self.question.motif, self.question.shape
        kinds = {}
        for text in self.question.columns or ():
            name, _, column = text.partition(".")
            kinds[text] = (shape.edges if name in motif.edges else shape.vertices).field(column).type
        table = pa.schema({**kinds, DIFF: pa.int64()}).empty_table()
        return pl.DataFrame(pl.from_arrow(table))

    def _changed(self, edges: pl.DataFrame, vertices: pl.DataFrame) -> Iterator[tuple[str, pl.DataFrame]]:
        """Yield, per edge of the motif that can have changed, its name and the matches of which it is the first."""
        changed_edges = edges.filter(pl.col(MARK) != 0)
        possible = changed_edges.select(**{search.changed: search.possible for search in self._searches}).row(0)
        for search, can_be in zip(self._searches, possible, strict=True):
            if can_be:
                yield search.changed, search.found(edges, vertices)

    @cached_property
    def _searches(self) -> list[_Search]:
        """One search per edge of the motif.

        A negated edge is taken for one that must be there: what it fits has changed if it came or went.
        """
        question, terms = self.question, [term for term in self.question.motif.terms if isinstance(term, Edge)]
        # Each edge makes matches of its own, whether it has a name or not.
        edges = [replace(edge, name=edge.name if edge.named else f"edge {place}") for place, edge in enumerate(terms)]
        there = [edge for edge in edges if not edge.negated]
        columns = self._ends if self._negates else question.columns or ()
        searches = []
        for edge in edges:
            others = [other for other in there if other is not edge]
            before = there.index(edge) if edge in there else 0
            mark = Column(edge.name, MARK)
            conditions: list[Node] = [Binary("!=", mark, _STAYED)]
            conditions += [Binary("=", Column(other.name, MARK), _STAYED) for other in others[:before]]
            conditions += [_stayed_or(Column(other.name, MARK), mark) for other in others[before:]]
            motif = Motif(question.motif.text, (replace(edge, negated=False), *others))
            asked = replace(question, motif=motif, columns=(*columns, _mark_of(edge.name)))
            searches.append(_Search(question=_narrowed(asked, conditions), changed=edge.name))
        return searches

    @cached_property
    def _ends(self) -> tuple[str, ...]:
        """The columns of a match that say where it lies: its vertices, and the ends of its edges."""
        motif = self.question.motif
        vertices = [f"{name}.{ID}" for name in motif.columns if name not in motif.edges]
        edges = [name for name, edge in motif.edges.items() if edge.named]
        return (*vertices, *(f"{name}.{end}" for name in edges for end in (SRC, DST)))

    @cached_property
    def _nearby(self) -> _Search:
        """The question itself about edges that are marked where matches may have changed."""
        # Each edge has a name, or one end of it has.
        conditions = [Binary("=", Column(name, MARK), Literal(1)) for name in self.question.motif.edges]
        return _Search(question=_narrowed(self.question, conditions))

    def _found_nearby(self, edges: pl.DataFrame, vertices: pl.DataFrame) -> pl.DataFrame:
        """Return what is found now where matches may have changed, and what was found there before."""
        places = [rows[column].alias(ID) for _, rows in self._changed(edges, vertices) for column in self._ends]
        near = pl.concat([pl.Series(ID, [], pl.Int64), *places]).unique()
        if near.is_empty():
            return self._nothing
        marked = edges.with_columns(
            pl.any_horizontal(pl.col(SRC, DST).is_in(near.implode())).cast(pl.Int64).alias(MARK)
        )
        signs = {1: edges[MARK] >= 0, -1: edges[MARK] <= 0}
        parts = [
            self._nearby.found(marked.filter(there), vertices).with_columns(pl.lit(sign, pl.Int64).alias(DIFF))
            for sign, there in signs.items()
        ]
        return pl.concat(parts)


def _mark_of(edge: str) -> str:
    return f"{edge}.{MARK}"


def _stayed_or(mark: Column, other: Column) -> Node:
    """Say of an edge that it stayed, or came or went as another one did: no match has edges of before and of now."""
    return Binary("or", Binary("=", mark, _STAYED), Binary("=", mark, other))


def _narrowed(question: Question, conditions: Sequence[Node]) -> Question:
    """Return a question about marked edges, with conditions besides its own."""
    nodes = [*([] if question.condition is None else [question.condition]), *conditions]
    condition = reduce(lambda left, right: Binary("and", left, right), nodes) if nodes else None
    return replace(question, condition=condition, shape=_SHAPE)
