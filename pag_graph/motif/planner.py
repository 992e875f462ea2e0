"""How a motif is found: in which order edges are joined, and what is filtered where.

- Every condition of the filter is applied as early as it can be. Conditions on one edge and its ends become part of
  the scan of that edge; those on ends also of every other edge there.
- Columns of vertices that an edge tells (`Shape.of_source`) are read off the edge. Only a condition on another column
  joins the vertices before the end.
- Edges are joined greedily: first the one that the fewest rows are expected of, then always the one that is expected
  to leave the fewest. Equations between elements serve as keys of a join, like shared vertices.
- GraphFrames takes the terms in order, and a negated term removes duplicates of what was named before it. So terms
  are reordered only between two negated ones.

The plan (`pag_graph.motif.plan`) names no engine.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pag_graph.motif.conditions import Binary, Column, Node, columns_of, conjuncts, replace_columns
from pag_graph.motif.plan import DST, ID, SRC, Counts, Exclude, Join, Plan, Scan, Step, chosen_fields, identity
from pag_graph.motif.syntax import Edge, Motif, Vertex, must_exist

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pag_graph.motif.shape import Shape

_UNCONNECTED_SELECTIVITY = 1 / 3
"""Share of the pairs that a condition is taken to keep that compares two elements otherwise than by an equation."""
_FEW = 10
"""Number of different values that a column is taken to have that is no id."""
_IDS = {"id", "src", "dst", "segment", "activation", "read", "seq", "pos"}


class _Conditions:
    """The parts of a filter, and which of them are applied already."""

    def __init__(self, motif: Motif, condition: Node | None, shape: Shape) -> None:
        self.shape = shape
        self.edges = motif.edges
        self.all = tuple(dict.fromkeys(conjuncts(condition))) if condition is not None else ()
        self.elements = {node: {column.element for column in columns_of(node)} for node in self.all}
        self.left = [node for node in self.all if self.elements[node]]
        self.constant = tuple(node for node in self.all if not self.elements[node])

    def on_edge(self, edge: Edge) -> tuple[Node, ...]:
        """Return the conditions that rows of one edge decide, in terms of its columns."""
        on_this_edge = []
        for node in self.all:
            if self.elements[node] and self.elements[node] <= {edge.name, edge.src, edge.dst}:
                edge_condition = self._of_edge(node, edge)
                if edge_condition is not None:
                    on_this_edge.append(edge_condition)
                    # On ends only, it is applied to all other edges there, too; it need not be applied again.
                    self._take(node)
        return tuple(on_this_edge)

    def _of_edge(self, node: Node, edge: Edge) -> Node | None:
        is_known = True

        def of_edge(column: Column) -> Node:
            nonlocal is_known
            if column.element == edge.name:
                return column
            side = SRC if column.element == edge.src else DST
            if column.name == ID:
                return Column(edge.name, side)
            end_columns = self.shape.of_source if side == SRC else self.shape.of_target
            if column.name in end_columns:
                return end_columns[column.name](edge.name)
            is_known = False
            return column

        result = replace_columns(node, of_edge)
        return result if is_known else None

    def on_vertex(self, name: str) -> tuple[Node, ...]:
        """Return the conditions on one vertex that are not applied yet, in terms of its columns."""
        on_this_vertex = tuple(node for node in self.left if self.elements[node] == {name})
        for node in on_this_vertex:
            self._take(node)
        return on_this_vertex

    def ready(self, bound: set[str]) -> tuple[Node, ...]:
        """Return the conditions on elements that are all there now."""
        decidable = tuple(node for node in self.left if self.elements[node] <= bound)
        for node in decidable:
            self._take(node)
        return decidable

    def equations(self, bound: set[str], new: set[str]) -> list[tuple[Node, tuple[Node, Node]]]:
        """Return the conditions that equate something there with something new, with their sides in this order."""
        equations_found: list[tuple[Node, tuple[Node, Node]]] = []
        for node in self.left:
            if not (isinstance(node, Binary) and node.operator == "="):
                continue
            left_elements, right_elements = (
                {column.element for column in columns_of(side)} for side in (node.left, node.right)
            )
            if left_elements and right_elements and left_elements <= bound and right_elements <= new:
                equations_found.append((node, (node.left, node.right)))
            elif left_elements and right_elements and right_elements <= bound and left_elements <= new:
                equations_found.append((node, (node.right, node.left)))
        return equations_found

    def between(self, bound: set[str], new: set[str]) -> int:
        """Return how many conditions become decidable that are no equations."""
        equations = {node for node, _ in self.equations(bound, new)}
        return sum(
            1
            for node in self.left
            if node not in equations and self.elements[node] <= bound | new and self.elements[node] & new
        )

    def _take(self, node: Node) -> None:
        if node in self.left:
            self.left.remove(node)

    def apply(self, nodes: Iterable[Node]) -> None:
        for node in list(nodes):
            self._take(node)


@dataclass(frozen=True, slots=True)
class _Input:
    """A term that is to be joined."""

    scan: Scan
    vertices: tuple[str, ...]

    @property
    def elements(self) -> set[str]:
        return {self.scan.element, *self.vertices}


def make_plan(
    motif: Motif,
    condition: Node | None,
    shape: Shape,
    *,
    columns: Sequence[str] | None = None,
    count: Callable[[Sequence[Scan]], Counts] | None = None,
    always_count: bool = False,
) -> Plan:
    """Plan how to find a motif.

    Parameters
    ----------
    motif
        What to find.
    condition
        What must hold of it, typed by `pag_graph.motif.filters.check`.
    shape
        Columns of the graph, and facts about them.
    columns
        See `chosen_fields`.
    count
        Tells how many rows scans give; called at most once. Without it terms are joined in the order in which they are
        written, as far as they hang together.
    always_count
        Call it even where the order does not depend on it.

    Returns
    -------
    Plan
        Its meaning does not depend on `count`.
    """
    conditions = _Conditions(motif, condition, shape)
    fields = chosen_fields(motif, shape, columns)
    blocks = _blocks(motif)
    inputs = {id(term): _input(term, conditions) for block, _ in blocks for term in block}
    lookups = _lookups([term for block, _ in blocks for term in block], conditions)
    counts = None
    # Two terms have one order only, and a motif without conditions is the same everywhere.
    undecided = any(len(block) > 2 for block, _ in blocks) and conditions.all  # noqa: PLR2004
    if count is not None and (undecided or always_count):
        counts = count([*(item.scan for item in inputs.values()), *lookups.values()])
    # Conditions that no scan checks need their columns in later steps.
    needs: dict[str, dict[str, None]] = {}
    for node in conditions.left:
        for column in columns_of(node):
            if identity(motif, column) is None:
                needs.setdefault(column.element, {})[column.name] = None
    needed = {name: tuple(names) for name, names in needs.items()}
    steps = _Order(conditions, lookups, needed, counts).steps(blocks, inputs)
    return Plan(motif=motif, steps=tuple(steps), fields=fields, needs=needed, shape=shape)


def in_evaluation_order(motif: Motif) -> Motif:
    """Return a motif with its terms in the order in which they are evaluated, which GraphFrames needs.

    Parameters
    ----------
    motif
        In any order.

    Returns
    -------
    Motif
        With the same matches; a negated term stands after all that its vertices need.

    Examples
    --------
    >>> from pag_graph.motif.syntax import parse_motif
    >>> str(in_evaluation_order(parse_motif("!(b)-[]->(n); (a)-[e]->(b)")))
    '(n); (a)-[e]->(b); !(b)-[]->(n)'
    """
    terms = [term for positive, negated in _blocks(motif) for term in (*positive, *negated)]
    return replace(motif, terms=tuple(terms))


def _blocks(motif: Motif) -> list[tuple[list[Edge | Vertex], list[Edge]]]:
    """Split the terms: what must be there, then what must not be, and so on.

    A negated term whose vertices come later waits for them.
    """
    positive = [term for term in motif.terms if isinstance(term, Vertex) or not term.negated]
    in_edges = {name for term in positive if isinstance(term, Edge) for name in (term.src, term.dst)}
    positive_vertices = {term.name for term in positive if isinstance(term, Vertex)}
    blocks: list[tuple[list[Edge | Vertex], list[Edge]]] = [([], [])]
    # Vertices that only negated terms have come first, as in GraphFrames.
    lonely = {
        name
        for term in motif.terms
        if isinstance(term, Edge) and term.negated
        for name in (term.src, term.dst)
        if must_exist(name) and name not in in_edges | positive_vertices
    }
    blocks[0][0].extend(Vertex(name) for name in sorted(lonely))
    bound = set(lonely)
    negation = any(isinstance(term, Edge) and term.negated for term in motif.terms)
    waiting: list[Edge] = []

    def flush() -> None:
        ready_edges = [edge for edge in waiting if all(v in bound or not must_exist(v) for v in (edge.src, edge.dst))]
        blocks[-1][1].extend(ready_edges)
        for edge in ready_edges:
            waiting.remove(edge)

    for term in motif.terms:
        if isinstance(term, Edge) and term.negated:
            waiting.append(term)
            flush()
            continue
        if isinstance(term, Vertex):
            # Where an edge has the vertex, the edge brings it; but duplicates may be removed before it does.
            if term.name in bound or (term.name in in_edges and not negation):
                continue
            names = {term.name}
        else:
            names = {term.src, term.dst}
        if blocks[-1][1]:
            blocks.append(([], []))
        blocks[-1][0].append(term)
        bound |= names
        flush()
    return blocks


def _input(term: Edge | Vertex, conditions: _Conditions) -> _Input:
    if isinstance(term, Vertex):
        return _Input(Scan(element=term.name, where=conditions.on_vertex(term.name)), (term.name,))
    conditions_of_edge = conditions.on_edge(term)
    if term.src == term.dst:
        conditions_of_edge = (Binary("=", Column(term.name, SRC), Column(term.name, DST)), *conditions_of_edge)
    return _Input(
        Scan(element=term.name, edge=term, where=conditions_of_edge), tuple(dict.fromkeys((term.src, term.dst)))
    )


def _lookups(positive: Sequence[Edge | Vertex], conditions: _Conditions) -> dict[str, Scan]:
    """Return scans of the vertices that have conditions which no edge can decide."""
    shape = conditions.shape
    edges = [term for term in positive if isinstance(term, Edge)]
    alone = {term.name for term in positive if isinstance(term, Vertex)}
    scans = {}
    for name in dict.fromkeys(vertex for term in edges for vertex in (term.src, term.dst)):
        if name in alone:
            continue
        vertex_conditions = conditions.on_vertex(name)
        columns_told = [
            known
            for term in edges
            for end, known in ((term.src, shape.of_source), (term.dst, shape.of_target))
            if end == name
        ]
        needed = {column.name for node in conditions.left for column in columns_of(node) if column.element == name}
        # Any of the edges may come first, so each of them must be able to tell.
        if vertex_conditions or any(
            column != ID and not all(column in known for known in columns_told) for column in needed
        ):
            scans[name] = Scan(element=name, where=vertex_conditions, exact=not shape.closed)
    return scans


class _Order:
    """Chooses what is joined next."""

    def __init__(
        self,
        conditions: _Conditions,
        lookups: Mapping[str, Scan],
        needs: Mapping[str, tuple[str, ...]],
        counts: Counts | None,
    ) -> None:
        self.conditions = conditions
        self.lookups = lookups
        self.needs = needs
        self.counts = counts
        self.bound: set[str] = set()
        self.rows = 1.0

    def steps(
        self, blocks: Sequence[tuple[list[Edge | Vertex], list[Edge]]], inputs: Mapping[int, _Input]
    ) -> list[Step]:
        steps: list[Step] = []
        for positive, negated in blocks:
            remaining = [inputs[id(term)] for term in positive]
            while remaining:
                # A vertex that is a term of its own comes before the edges that have it: its scan gives its columns.
                lone_vertices = {item.scan.element for item in remaining if not item.scan.is_edge}
                ready_inputs = [
                    item for item in remaining if not item.scan.is_edge or lone_vertices.isdisjoint(item.vertices)
                ]
                best = min(ready_inputs, key=self.cost)
                remaining.remove(best)
                steps.append(self.join(best, first=not steps))
            if negated:
                steps.append(Exclude(edges=tuple(negated), estimate=self.rows if self.counts else None))
        return steps

    def join(self, chosen: _Input, *, first: bool) -> Join:
        self.rows = self.estimate(chosen)
        new = chosen.elements - self.bound
        equations = self.conditions.equations(self.bound, new)
        self.conditions.apply(node for node, _ in equations)
        shared = tuple(name for name in chosen.vertices if name in self.bound)
        lookups = tuple(self.lookups[name] for name in chosen.vertices if name in new and name in self.lookups)
        self.bound |= new
        return Join(
            scan=chosen.scan,
            shared=shared,
            keys=tuple(sides for _, sides in equations),
            reads=self.reads(chosen, new),
            lookups=lookups,
            where=(*self.conditions.ready(self.bound), *(self.conditions.constant if first else ())),
            estimate=self.rows if self.counts is not None else None,
        )

    def reads(self, chosen: _Input, new: set[str]) -> tuple[tuple[str, str, Node], ...]:
        edge, shape = chosen.scan.edge, self.conditions.shape
        if edge is None:
            return ()
        columns_read: dict[tuple[str, str], Node] = {}
        for vertex, end_columns in ((edge.src, shape.of_source), (edge.dst, shape.of_target)):
            if vertex in new and vertex not in self.lookups:
                for column in self.needs.get(vertex, ()):
                    columns_read.setdefault((vertex, column), end_columns[column](edge.name))
        return tuple((vertex, column, node) for (vertex, column), node in columns_read.items())

    def cost(self, candidate: _Input) -> tuple[int, float]:
        """Rank what could be joined next: what hangs together with the rest first, then by the rows expected."""
        if not self.bound:
            return 0, self.estimate(candidate)
        new = candidate.elements - self.bound
        if self.bound & set(candidate.vertices) or self.conditions.equations(self.bound, new):
            return 0, self.estimate(candidate)
        return (1 if self.conditions.between(self.bound, new) else 2), self.estimate(candidate)

    def estimate(self, candidate: _Input) -> float:
        """Expect keys to be independent and evenly spread."""
        if self.counts is None:
            return 0.0
        vertices = max(self.counts.vertices, 1)
        new = candidate.elements - self.bound
        result = self.rows * self.counts.by_element[candidate.scan.element]
        for name in candidate.vertices:
            if name in new and name in self.lookups and candidate.scan.is_edge:
                result *= self.counts.by_element[name] / vertices
        result /= vertices ** len(self.bound & set(candidate.vertices))
        for _, (_, side) in self.conditions.equations(self.bound, new):
            ids = all(column.name in _IDS for column in columns_of(side))
            result /= vertices if ids else _FEW
        if self.bound:
            result *= _UNCONNECTED_SELECTIVITY ** self.conditions.between(self.bound, new)
        return result
