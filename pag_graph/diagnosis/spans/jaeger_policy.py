"""Policy `jaeger`: the critical path as Jaeger's UI shows it, for comparison.

Rules of jaeger-ui at c321fb3. A span's *tree parent* is its first reference of either kind that exists; the walk goes
up to its *walk-up parent*, the first CHILD_OF of the same trace, else the first FOLLOWS_FROM. They can differ, and the
parent that is walked to can be absent: then there is no path, which the UI does not say.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, NamedTuple

from pag_graph.sources.spans.table import CHILD_OF, CONSUMER, FOLLOWS_FROM, LINK, PRODUCER

if TYPE_CHECKING:
    from pag_graph.diagnosis.spans.one_trace import OneTrace


class Section(NamedTuple):
    """A part of a path, in the format's unit of time."""

    span: int
    """Index in the trace."""
    start: int
    end: int


class _Tree(NamedTuple):
    order: list[int]
    """From a root on, each span before its children."""
    children: list[list[int]]
    walk_up: list[int | None]
    """Per span the parent that the walk goes to; -1 for one that is absent, None for none."""
    start: list[int]


def critical_path(trace: OneTrace) -> tuple[list[Section], int]:
    """Return the sections of a trace's path as Jaeger's UI shows it.

    Parameters
    ----------
    trace
        One trace.

    Returns
    -------
    sections : list of Section
        From the end of each root backward; roots by start.
    failed : int
        For how many roots there is no path: their parent is absent, or the walk would not end.

    Notes
    -----
    O(n log n), without recursion.
    """
    parent, walk_up, children = _links(trace)
    start = list(trace.start)
    roots = [span for span, above in enumerate(parent) if above is None]
    for root in roots:
        start[root] = max(start[root], 0)
    sections: list[Section] = []
    failed = 0
    for root in sorted(roots, key=start.__getitem__):
        tree = _grown(trace, root, children, walk_up, start)
        of_root = _walk(root, tree, _cut(trace, tree))
        failed += not of_root
        sections += of_root
    return sections, failed


def _links(trace: OneTrace) -> tuple[list[int | None], list[int | None], list[list[int]]]:
    number: dict[str, int] = {}
    for span, name in enumerate(trace.ids):
        number.setdefault(name, span)
    parent: list[int | None] = []
    walk_up: list[int | None] = []
    children: list[list[int]] = [[] for _ in trace.ids]
    for span, references in enumerate(trace.references):
        stated = [reference for reference in references if reference[0] != LINK]
        parent.append(next((number[name] for _, _, name in stated if name in number), None))
        above = parent[span]
        if above is not None:
            children[above].append(span)
        same_trace = [(kind, name) for kind, is_same_trace, name in stated if is_same_trace]
        ordered = [
            name for reference_kind in (CHILD_OF, FOLLOWS_FROM) for kind, name in same_trace if kind == reference_kind
        ]
        walk_up.append(number.get(ordered[0], -1) if ordered else None)
    return parent, walk_up, children


def _grown(trace: OneTrace, root: int, children: list[list[int]], walk_up: list[int | None], start: list[int]) -> _Tree:
    """Return the tree below a root without what a consumer did; starts that say nothing become the parent's."""
    order, remaining, stack = [], [list[int]() for _ in trace.ids], [root]
    while stack:
        span = stack.pop()
        order.append(span)
        for child in children[span]:
            if start[child] <= 0:
                start[child] = start[span]
        below = sorted(children[span], key=start.__getitem__)
        remaining[span] = [child for child in below if (trace.kind[span], trace.kind[child]) != (PRODUCER, CONSUMER)]
        stack += reversed(remaining[span])
    return _Tree(order, remaining, walk_up, start)


def _cut(trace: OneTrace, tree: _Tree) -> dict[int, tuple[int, int]]:
    """Return start and end of the spans that are left, cut to the parent that the walk goes to."""
    times = {span: (tree.start[span], tree.start[span] + trace.duration[span]) for span in tree.order}
    for span in tree.order:
        above = tree.walk_up[span]
        if above is None:
            continue
        if above not in times:
            del times[span]
            continue
        (start, end), (low, high) = times[span], times[above]
        if start >= high if start >= low else end <= low:
            del times[span]
        else:
            times[span] = max(start, low), min(end, high)
    return times


def _walk(root: int, tree: _Tree, times: dict[int, tuple[int, int]]) -> list[Section]:
    ends: dict[int, tuple[list[int], list[int]]] = {}
    sections: list[Section] = []
    visited: set[tuple[int, int]] = set()
    # From where the walk comes back; 0 says as much as nothing, as it does in the UI.
    span, returned = root, 0
    while span in times:
        if (span, returned) in visited:
            return []
        visited.add((span, returned))
        if span not in ends:
            by_end = sorted(
                ((times[child][1], -place, child) for place, child in enumerate(tree.children[span]) if child in times)
            )
            ends[span] = [end for end, _, _ in by_end], [child for _, _, child in by_end]
        start, end = times[span]
        ends_of_children, children = ends[span]
        before = bisect_left(ends_of_children, returned) if returned else len(ends_of_children)
        child = children[before - 1] if before else None
        section = Section(span, start if child is None else ends_of_children[before - 1], returned or end)
        if section.start != section.end:
            sections.append(section)
        if child is not None:
            span, returned = child, 0
            continue
        above = tree.walk_up[span]
        if above is None:
            return sections
        span, returned = above, start
    return sections
