"""How much sooner a request would end without what failed, as CRISP reckons it (policy `crisp`).

Children of a span fall into blocks that follow each other; in a block the savings of those that follow each other add
up, as long as the order of the recording is kept, and the block ends with the last of them.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pag_graph.diagnosis.spans.crisp_siblings import Siblings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pag_graph.diagnosis.spans.crisp_siblings import Node


@dataclass(slots=True)
class _Block:
    first: Node
    end: int
    overlap: int
    nodes: list[Node]


class _AssertedError(Exception):
    """CRISP would fail an assertion."""


def time_saved(nodes: dict[int, Node], order: Sequence[int], ids: Sequence[str]) -> int | None:
    """Return the time that a request would save without what failed.

    Parameters
    ----------
    nodes
        Spans by number, cut.
    order
        Their numbers, each before its children, the root first.
    ids
        Ids of all spans, by which CRISP breaks ties.

    Returns
    -------
    int or None
        In the unit of the nodes' times; None where CRISP fails an assertion, or divides by a duration of 0.

    Notes
    -----
    Without recursion; quadratic where many siblings follow many others.
    """
    saved: dict[int, int | None] = {}
    for span in reversed(order):
        node = nodes[span]
        if node.error:
            saved[span] = node.duration
            continue
        try:
            children = [nodes[child] for child in node.children]
            total = sum(_saved_in(block, node, saved) for block in _blocks(children, node, ids))
            saved[span] = min(total, node.duration)
        except (_AssertedError, ZeroDivisionError):
            saved[span] = None
    return saved[order[0]]


def _blocks(children: list[Node], parent: Node, ids: Sequence[str]) -> list[_Block]:
    """Return the blocks of children, last one first."""
    siblings = Siblings(children, parent.duration)
    blocks: list[_Block] = []
    for node in sorted(children, key=lambda node: (-node.end, node.start, ids[node.span])):
        if blocks and not siblings.precedes(node, blocks[-1].first):
            blocks[-1].nodes.append(node)
            if node.start < blocks[-1].first.start:
                blocks[-1].first = node
            continue
        overlap = max(0, node.end - blocks[-1].first.start) if blocks else 0
        blocks.append(_Block(node, node.end, overlap, [node]))
    return blocks


def _saved_in(block: _Block, parent: Node, saved: dict[int, int | None]) -> int:
    # By end, latest first. CRISP takes those that end together as they lie in a set, in the order of their addresses in
    # memory: what it says of them differs from run to run. Here it is always the order that an ordered set would give.
    ordered = sorted(block.nodes, key=lambda node: node.end)[::-1]
    siblings = Siblings(ordered, parent.duration)
    before = _just_before(ordered)
    start = block.first.start
    cache: dict[int, int] = {}
    latest = -1
    for place, node in enumerate(ordered):
        if place and siblings.precedes(node, ordered[0]):
            break
        gain = _in_series(node, start, (before, cache, saved))
        if not 0 <= gain <= block.end - start:
            raise _AssertedError
        latest = max(latest, node.end - gain)
    if not 0 <= latest <= block.end:
        raise _AssertedError
    return max(0, block.end - latest - block.overlap)


def _just_before(ordered: list[Node]) -> dict[int, list[Node]]:
    """Return for each sibling those that end before it starts, without those that precede one of these."""
    before: dict[int, list[Node]] = {node.span: [] for node in ordered}
    # By start, latest first: what has begun after a sibling's end can follow it.
    open_ones: list[tuple[int, int, Node]] = []
    for place, node in enumerate(ordered):
        until = bisect_left(open_ones, (-node.end + 1,))
        finished = []
        for number in range(until):
            later = open_ones[number][2]
            predecessors = before[later.span]
            follows = sum(node.end <= predecessor.start for predecessor in predecessors)
            if not predecessors or not follows:
                predecessors.append(node)
            elif follows == len(predecessors):
                finished.append(number)
        for number in reversed(finished):
            del open_ones[number]
        insort(open_ones, (-node.start, place, node))
    return before


def _in_series(
    node: Node, block_start: int, tables: tuple[dict[int, list[Node]], dict[int, int], dict[int, int | None]]
) -> int:
    """Return how much sooner a sibling would end, with what those before it save."""
    before, cache, saved = tables
    stack = [node]
    while stack:
        top = stack[-1]
        if top.span in cache:
            stack.pop()
            continue
        if missing := [predecessor for predecessor in before[top.span] if predecessor.span not in cache]:
            stack += missing
            continue
        own_saving = saved[top.span]
        if own_saving is None or not 0 <= own_saving <= top.duration:
            raise _AssertedError
        distance, latest = top.start - block_start, block_start
        for predecessor in before[top.span]:
            distance = max(0, min(distance, top.start - predecessor.end))
            latest = max(latest, predecessor.end - cache[predecessor.span])
        end = latest + distance + top.duration - own_saving
        if end > top.end:
            raise _AssertedError
        cache[top.span] = top.end - end
        stack.pop()
    return cache[node.span]
