"""Spans as trees: who is below whom, which times fit into which, and which lane of its service a span ran on."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pag_graph.kernels.compiling import kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    I64 = NDArray[np.int64]
    Flags = NDArray[np.bool_]


class Times(NamedTuple):
    """Start and end of each span, in nanoseconds."""

    start: NDArray[np.int64]
    """On the clock of its process, or moved to that of its parent."""
    end: NDArray[np.int64]
    """Not before `start`."""


class Places(NamedTuple):
    """Where each span ran; requests and spans are in order."""

    request: NDArray[np.int64]
    """Number of the request, ascending."""
    process: NDArray[np.int64]
    """Number of the process, from 0."""
    thread: NDArray[np.int64]
    """The thread that it stated, or -1 where that proves nothing."""
    parent: NDArray[np.int64]
    """Index, or -1."""


@kernel
def climb(parent: I64, rank: I64) -> tuple[I64, I64, I64, Flags]:
    """Find the root of every span, and cut circles of parents.

    Parameters
    ----------
    parent
        Index per span, or -1.
    rank
        Order of the spans: a circle is cut above its first one.

    Returns
    -------
    parent : array of int64
        Without circles.
    root : array of int64
        The span without parent above each.
    depth : array of int64
        How many spans are above.
    cut : array of bool
        Spans whose parent was taken away.

    Notes
    -----
    Linear, without recursion.

    Examples
    --------
    The first two are each other's parents.

    >>> climb(np.array([1, 0, 1]), np.array([0, 1, 2]))
    (array([-1,  0,  1]), array([0, 0, 0]), array([0, 1, 2]), array([ True, False, False]))
    """
    rows = len(parent)
    above = parent.copy()
    root, depth = np.full(rows, -1, np.int64), np.zeros(rows, np.int64)
    cut, mark = np.zeros(rows, np.bool_), np.full(rows, -1, np.int64)
    stack = np.empty(rows, np.int64)
    for row in range(rows):
        if root[row] >= 0:
            continue
        height, span = 0, row
        while span >= 0 and root[span] < 0 and mark[span] != row:
            mark[span] = row
            stack[height] = span
            height += 1
            span = above[span]
        if span >= 0 and root[span] < 0:
            first = span
            span_above = above[span]
            while span_above != span:
                if rank[span_above] < rank[first]:
                    first = span_above
                span_above = above[span_above]
            above[first] = -1
            cut[first] = True
            # Those of the circle are numbered from the cut down, then the others that led to it.
            height_of_circle = 0
            while stack[height_of_circle] != span:
                height_of_circle += 1
            circle = stack[height_of_circle:height].copy()
            place = 0
            while circle[place] != first:
                place += 1
            size = height - height_of_circle
            for index in range(size):
                stack[height_of_circle + index] = circle[(place + 1 + index) % size]
        for index in range(height - 1, -1, -1):
            span = stack[index]
            over = above[span]
            root[span] = span if over < 0 else root[over]
            depth[span] = 0 if over < 0 else depth[over] + 1
    return above, root, depth, cut


@kernel
def numbers_below(parent: I64, order: I64) -> tuple[I64, I64]:
    """Give spans numbers so that those below one have the numbers from its own to its last.

    Parameters
    ----------
    parent
        Index per span, or -1.
    order
        All spans, parents before children.

    Returns
    -------
    first, last : array of int64
        A span's own number, and the greatest one below it.

    Notes
    -----
    Linear.

    Examples
    --------
    >>> numbers_below(np.array([-1, 0, 0]), np.array([0, 1, 2]))
    (array([0, 1, 2]), array([2, 1, 2]))
    """
    rows = len(parent)
    size = np.ones(rows, np.int64)
    for place in range(rows - 1, -1, -1):
        if parent[order[place]] >= 0:
            size[parent[order[place]]] += size[order[place]]
    first, free = np.empty(rows, np.int64), np.empty(rows, np.int64)
    at_root = 0
    for span in order:
        over = parent[span]
        if over < 0:
            first[span] = at_root
            at_root += size[span]
        else:
            first[span] = free[over]
            free[over] += size[span]
        free[span] = first[span] + 1
    return first, first + size - 1


@kernel
def mixed_threads(times: Times, thread: I64, first: I64, last: I64) -> Flags:
    """Say of which threads two spans overlap although neither is above the other: coroutines share them.

    Parameters
    ----------
    times
        Spans by thread, start, and end descending.
    thread
        Number of the thread, ascending; -1 for none.
    first, last
        As from `numbers_below`.

    Returns
    -------
    array of bool
        Per thread.

    Notes
    -----
    Linear.

    Examples
    --------
    >>> mixed_threads(Times(np.array([0, 3]), np.array([5, 9])), np.array([0, 0]), np.array([0, 1]), np.array([0, 1]))
    array([ True])
    """
    rows = len(thread)
    mixed = np.zeros(thread[rows - 1] + 1 if rows else 0, np.bool_)
    stack = np.empty(rows, np.int64)
    height = 0
    for row in range(rows):
        if thread[row] < 0:
            continue
        if row and thread[row] != thread[row - 1]:
            height = 0
        while height and times.end[stack[height - 1]] <= times.start[row]:
            height -= 1
        if height and not first[stack[height - 1]] <= first[row] <= last[stack[height - 1]]:
            mixed[thread[row]] = True
        stack[height] = row
        height += 1
    return mixed


@kernel
def fit(times: Times, parent: I64, order: I64, shift: I64, tolerance: I64) -> tuple[Times, I64]:
    """Move spans to their parents' clocks, and see whether they fit into them.

    Parameters
    ----------
    times
        Of all spans, as recorded.
    parent
        Index per span, or -1.
    order
        All spans, parents before children.
    shift
        What is added to a span's times beyond what is added to its parent's.
    tolerance
        How far a span may reach out of its parent and still be inside; -1 if it never counts as inside.

    Returns
    -------
    times : Times
        Moved; of spans that are inside, cut to the parent.
    outside : array of int64
        How far a span reaches out of its parent, whether cut or not; 0 for roots.

    Notes
    -----
    Linear.

    Examples
    --------
    The second one ends 1 later than the first.

    >>> recorded, zeros = Times(np.array([0, 4]), np.array([8, 9])), np.zeros(2, np.int64)
    >>> fit(recorded, np.array([-1, 0]), np.array([0, 1]), zeros, np.array([0, 1]))
    (Times(start=array([0, 4]), end=array([8, 8])), array([0, 1]))
    """
    rows = len(parent)
    start, end = times.start.copy(), times.end.copy()
    total, outside = np.zeros(rows, np.int64), np.zeros(rows, np.int64)
    for span in order:
        over = parent[span]
        total[span] = shift[span] + (total[over] if over >= 0 else 0)
        start[span] += total[span]
        end[span] += total[span]
        if over < 0:
            continue
        outside[span] = max(0, start[over] - start[span], end[span] - end[over])
        if outside[span] <= tolerance[span]:
            start[span] = min(max(start[span], start[over]), end[over])
            end[span] = max(min(end[span], end[over]), start[span])
    return Times(start, end), outside


@kernel
def lay_out(times: Times, places: Places) -> tuple[I64, Flags]:
    """Give every span a lane of its process.

    Parameters
    ----------
    times
        Spans by request, start, end descending, parents before children.
    places
        The same spans.

    Returns
    -------
    lane : array of int64
        Number of the lane within process and request, from 0.
    nested : array of bool
        Whether a span runs inside its parent, on its lane: the thread is the same, and nothing else is open there.

    Notes
    -----
    A span that is not nested takes the lane that became free last before it starts, and not its parent's, for it has
    to be told from there. Linear in spans and lanes of a process in a request.

    Examples
    --------
    The second span runs in its parent, the third beside them.

    >>> times = Times(np.array([0, 1, 2]), np.array([9, 4, 5]))
    >>> where = Places(*np.array([[0, 0, 0], [0, 0, 0], [3, 3, -1], [-1, 0, 0]]))
    >>> lay_out(times, where)
    (array([0, 0, 1]), array([False,  True, False]))
    """
    rows = len(times.start)
    lane, nested = np.zeros(rows, np.int64), np.zeros(rows, np.bool_)
    # Lanes of the request at hand: the lane before it in its process, when it is free, and what is open on it.
    free, before, innermost = np.empty(rows, np.int64), np.empty(rows, np.int64), np.empty(rows, np.int64)
    number = np.empty(rows, np.int64)
    slot, below = np.empty(rows, np.int64), np.empty(rows, np.int64)
    newest = np.full(places.process.max() + 1 if rows else 0, -1, np.int64)
    lanes = begin = 0
    for span in range(rows):
        if span and places.request[span] != places.request[span - 1]:
            newest[places.process[begin:span]] = -1
            lanes, begin = 0, span
        over, start = places.parent[span], times.start[span]
        # What began before its parent has no lane to share yet.
        home = slot[over] if 0 <= over < span else -1
        if home >= 0 and places.thread[span] >= 0 and places.thread[over] == places.thread[span]:
            while innermost[home] >= 0 and times.end[innermost[home]] <= start:
                innermost[home] = below[innermost[home]]
            if innermost[home] == over and times.end[span] <= times.end[over]:
                nested[span], slot[span], lane[span] = True, home, lane[over]
                below[span], innermost[home] = over, span
                continue
        best = -1
        option = newest[places.process[span]]
        while option >= 0:
            if option != home and free[option] < start and (best < 0 or free[option] >= free[best]):
                best = option
            option = before[option]
        if best < 0:
            best = lanes
            lanes += 1
            last = newest[places.process[span]]
            before[best], number[best] = last, 0 if last < 0 else number[last] + 1
            newest[places.process[span]] = best
        slot[span], lane[span], below[span] = best, number[best], -1
        innermost[best], free[best] = span, times.end[span]
    return lane, nested


@kernel
def all_above(parent: I64, order: I64, sure: Flags) -> Flags:
    """Say for which spans something holds, and for all that are above.

    Parameters
    ----------
    parent
        Index per span, or -1.
    order
        All spans, parents before children.
    sure
        Whether it holds for the span itself.

    Returns
    -------
    array of bool
        Per span: whether it holds for the span and for all above. Linear.

    Examples
    --------
    >>> all_above(np.array([-1, 0, 1]), np.array([0, 1, 2]), np.array([True, False, True]))
    array([ True, False, False])
    """
    holds = sure.copy()
    for span in order:
        if parent[span] >= 0:
            holds[span] &= holds[parent[span]]
    return holds
