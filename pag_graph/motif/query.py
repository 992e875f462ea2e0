"""What is asked for: a motif, its filter and columns; and what finding it has in common on all engines."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property, reduce
from itertools import combinations
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa

from pag_graph.errors import InvalidParameterError
from pag_graph.model.given import mapping, text_of, texts_of
from pag_graph.motif.conditions import Binary, Column, Node
from pag_graph.motif.filters import check, parameters_of, parse_filter
from pag_graph.motif.patterns import find_pattern
from pag_graph.motif.plan import Counts, Plan, Scan, chosen_fields
from pag_graph.motif.planner import make_plan
from pag_graph.motif.syntax import Motif, parse_motif

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pag_graph.motif.conditions import Value
    from pag_graph.motif.shape import Shape


@dataclass(frozen=True, kw_only=True)
class Question:
    """A motif, its filter and the columns that are asked for, checked against a graph's columns."""

    motif: Motif
    """What is looked for."""
    condition: Node | None
    """What must hold of it, typed; None for nothing."""
    columns: tuple[str, ...] | None
    """Columns of the answer, as `pag_graph.motif.plan.chosen_fields` takes them."""
    shape: Shape
    """Of the graph that is asked."""


def ask(
    pattern: str,
    where: str | Sequence[str] | None,
    shape: Shape,
    *,
    columns: Sequence[str] | None = None,
    parameters: Mapping[str, Value] | None = None,
    distinct: bool = False,
) -> Question:
    """Read a motif and its filter.

    Parameters
    ----------
    pattern
        A motif (see `pag_graph.motif.syntax`), or the name of a pattern (`pag_graph.motif.patterns`), which brings a
        filter of its own.
    where
        See `pag_graph.motif.filters`. Of several filters all must hold.
    shape
        Of the graph.
    columns
        See `pag_graph.motif.plan.chosen_fields`.
    parameters
        Values of the filter's parameters; those of a pattern that are absent have its defaults.
    distinct
        Whether no two named edges may be the same edge.

    Returns
    -------
    Question
        To be planned for an engine.

    Raises
    ------
    InvalidParameterError
        If something is of a wrong type; if `distinct` is asked for, and nothing tells the graph's edges apart; if there
        is no pattern of this name; or if nothing has such a parameter.
    """
    texts = [where] if isinstance(where, str) else texts_of(where or (), "where")
    columns = None if columns is None else texts_of(columns, "columns")
    pattern, parameters = text_of(pattern, "pattern"), mapping(parameters, "parameters")
    if (known_pattern := find_pattern(pattern)) is not None:
        pattern, texts, parameters = (
            known_pattern.motif,
            [known_pattern.where, *texts],
            known_pattern.values(parameters),
        )
    motif = parse_motif(pattern)
    edges = motif.edges
    types = {
        name: {column.name: column.type for column in (shape.edges if name in edges else shape.vertices)}
        for name in motif.columns
    }
    condition: Node | None = None
    used: set[str] = set()
    for text in texts:
        if not text.strip():
            continue
        node = parse_filter(text, parameters)
        used |= parameters_of(text)
        check(node, text, types)
        condition = node if condition is None else Binary("and", condition, node)
    unused = sorted(set(parameters or {}) - used)
    if unused:
        used_parameters = ", ".join(f"${name}" for name in sorted(used)) or "none"
        message = f"No filter uses the parameter ${unused[0]}; they use {used_parameters}."
        raise InvalidParameterError(message, f"Use it, such as `e.duration_ns > ${unused[0]}`, or leave it out.")
    if distinct:
        for first, second in _named_pairs(motif):
            node = _different(first, second, shape)
            condition = node if condition is None else Binary("and", condition, node)
    # A column that does not exist is refused now, not when the answer is computed.
    chosen_fields(motif, shape, columns)
    return Question(motif=motif, condition=condition, columns=tuple(columns) if columns else None, shape=shape)


def _named_pairs(motif: Motif) -> list[tuple[str, str]]:
    """Return every two edges that have names, in the order of the motif."""
    return list(combinations([name for name in motif.columns if name in motif.edges], 2))


def _different(first: str, second: str, shape: Shape) -> Node:
    """Return the condition that two names stand for two edges.

    Raises
    ------
    InvalidParameterError
        If nothing tells edges apart.
    """
    if not shape.edge_key:
        message = "Two edges of this graph may have the same values in all columns, so they cannot be kept apart."
        raise InvalidParameterError(message, "Leave out `distinct`, and compare columns in the filter.")
    differences = [Binary("!=", Column(first, name), Column(second, name)) for name in shape.edge_key]
    return reduce(lambda left, right: Binary("or", left, right), differences)


@dataclass(kw_only=True)
class PlannedQuery:
    """What a motif to be found has in common on both engines."""

    question: Question
    """What is asked."""
    limit: int | None = None
    """Most rows of the answer; the first ones in the order of their elements' ids and keys. None for all."""
    _counted: list[int | None] = field(default_factory=list)
    _total: int | None = None

    @cached_property
    def plan(self) -> Plan:
        """The steps that find it."""
        return self._planned(always_count=False)

    @property
    def edge_order(self) -> tuple[str, ...]:
        """The columns of an edge that rows are brought in order by."""
        shape = self.question.shape
        return shape.edge_key or ("src", "dst", *(name for name in shape.edges.names if name not in {"src", "dst"}))

    def explain(self, *, analyse: bool = False) -> str:
        """Return how the motif is found, with the rows that are expected after every step.

        Parameters
        ----------
        analyse
            Find it, and say how many rows there really were after every step.

        Returns
        -------
        str
            One line per step.
        """
        if any(step.estimate is None for step in self.plan.steps):
            # Cached properties belong to the plan that is replaced.
            for cached in self._of_plan:
                self.__dict__.pop(cached, None)
            self.plan = self._planned(always_count=True)
        if analyse:
            self._counted, self._total = self._counted_matches()
        return self.plan.explain(self._counted, self._total)

    def same_edges(self, answer: pa.Table) -> list[tuple[str, str]]:
        """Return the names that stand for one and the same edge in every row of an answer.

        Parameters
        ----------
        answer
            Rows of this query. Edges whose key (`Shape.edge_key`) is not among the columns are left out.

        Returns
        -------
        list of tuple of str and str
            Pairs of names; none of an answer without rows. Such a pair is rarely meant: see `distinct` in `ask`.
        """
        key = self.question.shape.edge_key
        keys = {
            name: [answer[name].combine_chunks().field(column) for column in key]
            for name in self.question.motif.edges
            if key
            and name in answer.column_names
            and {*key} <= {child.name for child in answer.schema.field(name).type}
        }
        pairs = [pair for pair in _named_pairs(self.question.motif) if {*pair} <= set(keys)] if answer.num_rows else []
        return [(first, second) for first, second in pairs if keys[first] == keys[second]]

    _of_plan: ClassVar[tuple[str, ...]] = ()
    """Cached properties that depend on the plan."""

    def _planned(self, *, always_count: bool) -> Plan:
        question = self.question
        return make_plan(
            question.motif,
            question.condition,
            question.shape,
            columns=question.columns,
            count=self._count,
            always_count=always_count,
        )

    def _is_integer(self, column: Column) -> bool:
        """Tell whether a column of an element holds integers."""
        shape = self.plan.shape
        schema = shape.edges if column.element in self.plan.motif.edges else shape.vertices
        return bool(pa.types.is_integer(schema.field(column.name).type))

    def _count(self, scans: Sequence[Scan]) -> Counts:
        """Count what every scan gives."""
        raise NotImplementedError

    def _counted_matches(self) -> tuple[list[int | None], int]:
        """Find the motif; return how many rows there were after every step, and at the end."""
        raise NotImplementedError
