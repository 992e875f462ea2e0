"""Who waits for whom among spans, and the path of each request (policy `pag`, `docs/spans.md`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pag_graph.kernels.compiling import kernel
from pag_graph.kernels.search import not_below

if TYPE_CHECKING:
    from numpy.typing import NDArray

    I64 = NDArray[np.int64]
    Flags = NDArray[np.bool_]

CALL, RETURN, INNER_START, INNER_END = 0, 1, 2, 3
"""What cuts a span's time."""
OWN, MESSAGE = 0, 1
"""What a part of a path is: a span's own time, or a call or return under way."""


class Spans(NamedTuple):
    """Spans in order: by request, start, end descending, parents before children. Times are nanoseconds."""

    start: NDArray[np.int64]
    """Begin of each span, on one clock."""
    end: NDArray[np.int64]
    """Not before `start`."""
    parent: NDArray[np.int64]
    """Index of its parent, or -1."""
    called: NDArray[np.int64]
    """When the parent, or what else started the span, sent it off."""
    lane: NDArray[np.int64]
    """A number that orders lanes: of returns sent at the same time, the one from the lowest lane counts."""


class Cuts(NamedTuple):
    """What cuts spans' time, sorted by span and time; one element per cut."""

    span: NDArray[np.int64]
    """Index of the span that is cut."""
    time: NDArray[np.int64]
    """Nanoseconds."""
    kind: NDArray[np.int64]
    """`CALL` to `INNER_END`."""
    child: NDArray[np.int64]
    """Index of the span that was called, returned, or runs inside."""


class Parts(NamedTuple):
    """Parts of time, one element each."""

    span: NDArray[np.int64]
    """Index of the span that it belongs to."""
    kind: NDArray[np.int64]
    """`OWN` or `MESSAGE`; of `waits`, the place of the first cut at its end."""
    begin: NDArray[np.int64]
    """Nanoseconds, as `end`."""
    end: NDArray[np.int64]


@kernel
def covered(spans: Spans, inner: I64, owner: I64, time: I64) -> I64:
    """Find what ran inside spans, on their own lanes, at some times.

    Parameters
    ----------
    spans
        All spans.
    inner
        Spans that run inside their parents, by parent and start; those of one parent follow each other.
    owner
        Spans to be asked.
    time
        When.

    Returns
    -------
    array of int64
        Per question: the span inside that began before `time` and had not ended before it, or -1.

    Notes
    -----
    O(questions log spans), and more where many spans without duration begin at one instant.

    Examples
    --------
    >>> columns = [[0, 2], [9, 4], [-1, 0], [0, 2], [0, 0]]
    >>> spans = Spans(*np.array(columns))
    >>> covered(spans, np.array([1]), np.array([0, 0, 0]), np.array([2, 4, 5]))
    array([-1,  1, -1])
    """
    covering = np.full(len(owner), -1, np.int64)
    parents = spans.parent[inner]
    for index in range(len(owner)):
        low, high = not_below(parents, owner[index]), not_below(parents, owner[index] + 1)
        while low < high:
            middle = (low + high) // 2
            if spans.start[inner[middle]] < time[index]:
                low = middle + 1
            else:
                high = middle
        place = low - 1
        # Spans without duration at one instant may stand between.
        while place >= 0 and parents[place] == owner[index] and spans.start[inner[place]] == spans.end[inner[place]]:
            place -= 1
        if place >= 0 and parents[place] == owner[index] and spans.end[inner[place]] >= time[index]:
            covering[index] = inner[place]
    return covering


@kernel
def waits(spans: Spans, cuts: Cuts) -> tuple[I64, Parts]:
    """Tell the own time of each span from the time that it waits.

    Parameters
    ----------
    spans, cuts
        All of them.

    Returns
    -------
    own
        array of int64: Per span its own time in nanoseconds: neither waiting, nor that of a span inside on the same
        lane.
    parts
        Parts: Stretches of waiting, by span and time; `kind` is the place in `cuts` of the first cut at the end of the
        stretch.

    Notes
    -----
    A part between two cuts is waiting if it ends with a return; who starts a child was not waiting just before. Linear.

    Examples
    --------
    A span of 10 calls at 2 and gets the answer at 7.

    >>> spans = Spans(*np.array([[0, 2], [10, 7], [-1, 0], [0, 2], [0, 1]]))
    >>> own, waiting = waits(spans, Cuts(*np.array([[0, 0], [2, 7], [0, 1], [1, 1]])))
    >>> own, waiting.begin, waiting.end
    (array([5, 5]), array([2]), array([7]))
    """
    own = spans.end - spans.start
    rows = len(cuts.span)
    columns = np.empty((4, rows), np.int64)
    count, inside, last = 0, 0, 0
    row = 0
    while row < rows:
        span, time = cuts.span[row], cuts.time[row]
        if not row or cuts.span[row - 1] != span:
            inside, last = 0, spans.start[span]
        returned, opened = False, inside
        first = row
        while row < rows and cuts.span[row] == span and cuts.time[row] == time:
            kind = cuts.kind[row]
            returned |= kind == RETURN
            # What has no duration is opened and closed at one instant.
            inside += (kind == INNER_START) - (kind == INNER_END)
            row += 1
        if time > last:
            if opened > 0:
                own[span] -= time - last
            elif returned:
                own[span] -= time - last
                columns[0, count], columns[1, count], columns[2, count], columns[3, count] = span, first, last, time
                count += 1
        last = time
    return own, Parts(columns[0, :count], columns[1, :count], columns[2, :count], columns[3, :count])


@kernel
def walk(spans: Spans, cuts: Cuts, roots: I64) -> tuple[I64, Parts]:
    """Walk from the end of each root back to its start.

    Parameters
    ----------
    spans, cuts
        All of them.
    roots
        Where to begin.

    Returns
    -------
    begins : array of int64
        Per root where its parts begin, and at last the count of all.
    parts : Parts
        Of each path, the last one first. They follow each other without a gap; a message belongs to the span that is
        called.

    Notes
    -----
    Where a return ends a wait, the path goes on with the span that returned; at a span's start, with its caller. Of
    several returns at one time the one sent last ended the wait; then that of the lowest lane. Linear, except for a
    search in the cuts of a span.

    Examples
    --------
    >>> spans = Spans(*np.array([[0, 3], [10, 6], [-1, 0], [0, 2], [0, 1]]))
    >>> begins, path = walk(spans, Cuts(*np.array([[0, 0], [2, 7], [0, 1], [1, 1]])), np.array([0]))
    >>> path.span, path.kind, path.begin, path.end
    (array([0, 1, 1, 1, 0]), array([0, 1, 0, 1, 0]), array([7, 6, 3, 2, 0]), array([10,  7,  6,  3,  2]))
    """
    columns = np.empty((4, 2 * len(cuts.span) + 2 * len(spans.start)), np.int64)
    begins = np.zeros(len(roots) + 1, np.int64)
    count = 0
    for number in range(len(roots)):
        span, time = roots[number], spans.end[roots[number]]
        while True:
            low, high = not_below(cuts.span, span), not_below(cuts.span, span + 1)
            while low < high:
                middle = (low + high) // 2
                if cuts.time[middle] <= time:
                    low = middle + 1
                else:
                    high = middle
            place, below = low - 1, -1
            while time > spans.start[span] and place >= 0 and cuts.span[place] == span and cuts.time[place] == time:
                child = cuts.child[place]
                if cuts.kind[place] == INNER_END and spans.start[child] < time:
                    below = child
                    break
                if cuts.kind[place] == RETURN and (
                    below < 0
                    or spans.end[child] > spans.end[below]
                    or (spans.end[child] == spans.end[below] and spans.lane[child] < spans.lane[below])
                ):
                    below = child
                place -= 1
            if below >= 0:
                begin, following, message = spans.end[below], below, below
            elif time > spans.start[span]:
                earlier = place >= 0 and cuts.span[place] == span
                begin = max(cuts.time[place], spans.start[span]) if earlier else spans.start[span]
                following, message = span, -1
            elif spans.parent[span] < 0 or span == roots[number]:
                break
            else:
                begin, following, message = spans.called[span], spans.parent[span], span
            if begin < time:
                columns[0, count] = span if message < 0 else message
                columns[1, count] = OWN if message < 0 else MESSAGE
                columns[2, count], columns[3, count] = begin, time
                count += 1
            span, time = following, begin
        begins[number + 1] = count
    return begins, Parts(
        columns[0, :count].copy(), columns[1, :count].copy(), columns[2, :count].copy(), columns[3, :count].copy()
    )
