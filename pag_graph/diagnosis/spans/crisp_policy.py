"""Policy `crisp`: critical path, exclusive times and savings as CRISP computes them, for comparison.

Rules of uber-research/CRISP at 2710c0b. A span's parent is its last CHILD_OF. Children are cut to their parents or
dropped, but where a client called a server only the duration is limited. Of children sorted by end, each that precedes
the last one taken is on the path; what overlaps by less than 1 % of the parent may precede too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pag_graph.diagnosis.spans.crisp_savings import time_saved
from pag_graph.diagnosis.spans.crisp_siblings import Node, Siblings
from pag_graph.sources.spans.table import CHILD_OF, CLIENT, ERROR, SERVER

if TYPE_CHECKING:
    from pag_graph.diagnosis.spans.one_trace import OneTrace
    from pag_graph.sources.spans.table import SpanTable

_LONGER = 1.01
"""How much longer than its client a server may be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CrispResult:
    """What CRISP says of a trace, in the format's unit of time."""

    path: list[int]
    """Indexes of the spans on the path, each before those below it."""
    exclusive: dict[int, int]
    """Per operation on the path its exclusive time."""
    total_work: int
    saved_on_work: int
    """Duration of all spans that failed."""
    saved_on_path: int | None
    """How much sooner the request would end without what failed; None where CRISP fails an assertion."""


def critical_path(
    trace: OneTrace, table: SpanTable, service: str | None = None, operation: str | None = None
) -> CrispResult | None:
    """Return what CRISP says of a trace.

    Parameters
    ----------
    trace
        One trace.
    table
        The table that it is from.
    service, operation
        Which span is the root: the first one so named; where absent, the first one without parent.

    Returns
    -------
    CrispResult or None
        None if there is no such root, or where CRISP fails: spans below one that takes no time.

    Notes
    -----
    O(n log n) except for savings, without recursion.
    """
    nodes, roots = _nodes(trace)
    root = _root(trace, table, nodes, roots, (service, operation))
    if root is None:
        return None
    nodes[root].parent = None
    order = _cut(trace, table, nodes, root)
    try:
        path = _path(nodes, root)
    except ZeroDivisionError:
        return None
    return CrispResult(
        path=path,
        exclusive=_exclusive(trace, nodes, path),
        total_work=sum(nodes[span].duration for span in order),
        saved_on_work=sum(nodes[span].duration for span in order if nodes[span].error),
        saved_on_path=time_saved(nodes, order, trace.ids),
    )


def _nodes(trace: OneTrace) -> tuple[dict[int, Node], list[int]]:
    """Return spans by number and those without parent; of spans with one id the last one, at the place of the first."""
    last_of_id = {name: span for span, name in enumerate(trace.ids)}
    nodes: dict[int, Node] = {}
    for span in last_of_id.values():
        start, duration = trace.start[span], trace.duration[span]
        error = bool(trace.flags[span] & ERROR)
        nodes[span] = Node(span, start, start + duration, duration, None, [], error)
    roots = []
    for span in last_of_id.values():
        stated = [name for kind, _, name in trace.references[span] if kind == CHILD_OF]
        above = last_of_id.get(stated[-1]) if stated else None
        if above is None:
            roots.append(span)
        else:
            nodes[span].parent = above
            nodes[above].children.append(span)
    return nodes, roots


def _root(
    trace: OneTrace,
    table: SpanTable,
    nodes: dict[int, Node],
    roots: list[int],
    root_name: tuple[str | None, str | None],
) -> int | None:
    stack = roots[::-1]
    while stack:
        span = stack.pop()
        operation = table.operations[trace.operation[span]]
        if all(name is None or name == stated for name, stated in zip(root_name, operation, strict=True)):
            return span
        stack += reversed(nodes[span].children)
    return None


def _cut(trace: OneTrace, table: SpanTable, nodes: dict[int, Node], root: int) -> list[int]:
    """Cut children to their parents, from the root down; returns what is left, each span before its children."""
    order = [root]
    for above in order:
        parent, remaining = nodes[above], []
        for span in parent.children:
            child = nodes[span]
            if _is_call(trace, table, nodes, parent, child):
                child.duration = min(child.duration, parent.duration)
            elif child.start >= parent.start and child.end <= parent.end:
                pass
            elif child.start < parent.start < child.end <= parent.end:
                child.duration -= parent.start - child.start
                child.start = parent.start
            elif parent.start <= child.start < parent.end < child.end:
                child.duration -= child.end - parent.end
                child.end = parent.end
            else:
                continue
            remaining.append(span)
        parent.children = remaining
        order += remaining
    return order


def _is_call(trace: OneTrace, table: SpanTable, nodes: dict[int, Node], parent: Node, child: Node) -> bool:
    """Tell whether a parent and its only child are the two sides of a call."""
    if len(parent.children) != 1 or child.duration > _LONGER * parent.duration:
        return False
    if trace.kind[child.span] == SERVER and trace.kind[parent.span] != SERVER:
        above = parent.parent
        if trace.kind[parent.span] == CLIENT or (above is not None and trace.kind[nodes[above].span] == SERVER):
            return True
    parent_process, child_process = (table.processes[trace.process[node.span]] for node in (parent, child))
    return parent_process.host_named and child_process.host_named and parent_process.host != child_process.host


def _path(nodes: dict[int, Node], root: int) -> list[int]:
    path, stack = [], [root]
    while stack:
        span = stack.pop()
        path.append(span)
        parent = nodes[span]
        if not parent.children:
            continue
        ordered = sorted((nodes[child] for child in parent.children), key=lambda node: node.end)[::-1]
        siblings, followed = Siblings(ordered, parent.duration), [ordered[0]]
        for node in ordered[1:]:
            if siblings.precedes(node, followed[-1]):
                followed.append(node)
        stack += [node.span for node in reversed(followed)]
    return path


def _exclusive(trace: OneTrace, nodes: dict[int, Node], path: list[int]) -> dict[int, int]:
    """Return exclusive time by operation: of each call path what is left after its children on the path."""
    paths: dict[tuple[int, int], int] = {}
    own_time: dict[int, int] = {}
    place: dict[int, int] = {}
    for span in path:
        above = nodes[span].parent
        outer = -1 if above is None else place[above]
        place[span] = paths.setdefault((outer, trace.operation[span]), len(paths))
        own_time[place[span]] = own_time.get(place[span], 0) + nodes[span].duration
        if outer >= 0:
            own_time[outer] -= nodes[span].duration
    by_operation: dict[int, int] = {}
    for (_, operation), number in paths.items():
        by_operation[operation] = by_operation.get(operation, 0) + max(own_time[number], 0)
    return by_operation
