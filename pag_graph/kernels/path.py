"""The critical path by contraction: from wait to wait, over the messages that ended them.

Windows lie side by side: column `first` of a named tuple, of shape (windows + 1,), says where the rows of each begin.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pag_graph.kernels.compiling import kernel, read_only
from pag_graph.kernels.search import above, grown, not_below
from pag_graph.model.ids import POSITION_BITS

if TYPE_CHECKING:
    from pag_graph.kernels.activations import I8, I64

Bools = NDArray[np.bool_]

# What a worker does on an edge. A worker at REST does nothing that the log tells of, and waits for no worker.
WORK, REST, WAIT, MESSAGE, SPAWN = 0, 1, 2, 3, 4

# How a walk ended.
REACHED_START, GAP, CYCLE, NO_ENDER, NO_END = 0, 1, 2, 3, 4


class Edges(NamedTuple):
    """Edges of windows, sorted by `dst` within their window, local ones before messages, and by `src`."""

    first: I64
    """Shape (windows + 1,): where the edges of each window begin."""
    src: I64
    """Id of the vertex where an edge begins, and so on: one element per edge and window."""
    dst: I64
    start: I64
    """Nanoseconds since the run's origin, not cut at the window; so is `end`."""
    end: I64
    role: I8
    """`WORK` to `SPAWN`."""


class Windows(NamedTuple):
    """Windows, one element each."""

    start: I64
    """Nanoseconds since the run's origin, as `end`."""
    end: I64
    end_vertex: I64
    """Id of the vertex that closes it, or -1."""


class Local(NamedTuple):
    """Local edges of windows, waits included, sorted by `dst` within each; messages may lie among them."""

    first: I64
    """Shape (windows + 1,)."""
    dst: I64
    """Id of the vertex that an edge leads to."""
    end: I64
    """Its time (ns)."""


class Begun(NamedTuple):
    """Vertices of windows where waits end or workers are born, sorted within each."""

    first: I64
    """Shape (windows + 1,)."""
    dst: I64
    """Their ids."""
    born: Bools
    """Whether a worker is born there."""


class Messages(NamedTuple):
    """Messages and spawns of windows, sorted by `dst` and `src` within each."""

    first: I64
    """Shape (windows + 1,)."""
    dst: I64
    """Id of the vertex that it ends at."""
    start: I64
    """When it was sent (ns)."""
    end: I64
    """When it ends (ns): its arrival where it ended a wait, else its read."""
    spawn: Bools
    """Whether it is a spawn."""


class Waits(NamedTuple):
    """Where waits end and workers are born, per window and sorted by vertex."""

    first: I64
    """Shape (windows + 1,)."""
    dst: I64
    """Id of the vertex at the end."""
    end: I64
    """Its time (ns)."""
    ender: I64
    """The message that ended the wait, or the spawn: its place in `Sends`, or -1."""


class Sends(NamedTuple):
    """Where messages begin, by the places that `Waits.ender` names."""

    src: I64
    """Id of the vertex."""
    start: I64
    """Its time (ns)."""


class Walks(NamedTuple):
    """Where walks begin, and the instants at which they end; one element per walk."""

    window: I64
    """Place of its window; walks of one window follow each other."""
    message: I64
    """The edge that comes before the first step, or -1."""
    vertex: I64
    """Id of the vertex where it begins; -1 where there is nothing but `message`."""
    stop_ns: I64
    """It goes back to this instant, and no further."""


class Hops(NamedTuple):
    """Parts of walks, the latest of each walk first; one element per part."""

    walk: I64
    """Number of its walk."""
    low: I64
    """Its local edges are those from `low` to `high` (exclusive)."""
    high: I64
    """See `low`."""
    message: I64
    """The edge that comes before them in time, or -1."""


class Paths(NamedTuple):
    """Critical paths of windows."""

    window: I64
    """Per edge of a path: the place of its window."""
    edge: I64
    """The same: the edge, in time order within its window."""
    ends: I64
    """Per window: how many workers its path may end on, as of `last_edges`; 0 where it is empty."""
    all_waiting: Bools
    """Per window: whether all workers wait at its end."""
    failed: int
    """A window whose walk had to stop, or -1."""
    outcome: int
    """Why: `REACHED_START` where none had to; `NO_END` where no edge ends at, or crosses, the window's end."""
    vertex: int
    """Where it stopped."""


@kernel
def walk(walks: Walks, local: Local, waits: Waits, sends: Sends) -> tuple[Hops, int, int, int]:
    """Walk from vertices back to some instant, each walk within its window.

    Parameters
    ----------
    walks
        Where they begin.
    local, waits, sends
        The windows' edges.

    Returns
    -------
    hops
        In the order of the walks. A worker that spawns another with the very event that it is born with has no local
        edge between two messages.
    failed, outcome, vertex
        A walk that had to stop, why, and where; -1, `REACHED_START` and -1 where there is none.

    Notes
    -----
    O(hops x log edges). Times never increase along a walk, and positions fall wherever a worker is visited again; more
    hops than waits can only be a cycle.

    Examples
    --------
    Worker 0 works from 0 to 9, when it sends a message; it is worker 1 that waited for it until 9, and worked until 20.

    >>> here = POSITION_BITS
    >>> local = Local(np.array([0, 3]), np.array([2, (1 << here) | 1, (1 << here) | 2]), np.array([9, 9, 20]))
    >>> waits = Waits(np.array([0, 1]), np.array([(1 << here) | 1]), np.array([9]), np.array([0]))
    >>> begins = Walks(np.array([0]), np.array([-1]), np.array([(1 << here) | 2]), np.array([0]))
    >>> hops, failed, outcome, vertex = walk(begins, local, waits, Sends(np.array([2]), np.array([9])))
    >>> hops.low, hops.high, hops.message
    (array([2, 0]), array([3, 1]), array([ 0, -1]))
    """
    room = max(16, 2 * walks.vertex.shape[0])
    number, low = np.empty(room, np.int64), np.empty(room, np.int64)
    high, message = np.empty(room, np.int64), np.empty(room, np.int64)
    hops, failed, outcome, vertex = 0, -1, REACHED_START, -1
    windows, messages, vertices, instants = walks
    local_first, all_dst, local_end = local
    wait_first, all_waits, wait_end, ender = waits
    sender, sent = sends
    window, first, first_wait, local_dst, wait_dst = -1, 0, 0, all_dst, all_waits
    for index in range(vertices.shape[0]):
        stop_ns, vertex = instants[index], vertices[index]
        if windows[index] != window:
            window = windows[index]
            first, first_wait = local_first[window], wait_first[window]
            local_dst = all_dst[first : local_first[window + 1]]
            wait_dst = all_waits[first_wait : wait_first[window + 1]]
        if messages[index] >= 0:
            if hops == number.shape[0]:
                number, low = grown(number, hops, hops + 1), grown(low, hops, hops + 1)
                high, message = grown(high, hops, hops + 1), grown(message, hops, hops + 1)
            number[hops], low[hops], high[hops], message[hops] = index, first, first, messages[index]
            hops += 1
        hops_left = wait_dst.shape[0] + 2
        while vertex >= 0:
            wait, edge = above(wait_dst, vertex) - 1, above(local_dst, vertex) - 1
            if hops_left == 0:
                outcome = CYCLE
            elif not ((edge >= 0 and local_dst[edge] == vertex) or (wait >= 0 and wait_dst[wait] == vertex)):
                outcome = GAP
            if outcome != REACHED_START:
                break
            hops_left -= 1
            if hops == number.shape[0]:
                number, low = grown(number, hops, hops + 1), grown(low, hops, hops + 1)
                high, message = grown(high, hops, hops + 1), grown(message, hops, hops + 1)
            number[hops], high[hops], message[hops] = index, first + edge + 1, -1
            is_same_worker = wait >= 0 and wait_dst[wait] >> POSITION_BITS == vertex >> POSITION_BITS
            if is_same_worker and wait_end[first_wait + wait] > stop_ns:
                low[hops] = first + above(local_dst, wait_dst[wait])
                ended_by = ender[first_wait + wait]
                if ended_by < 0:
                    vertex, outcome = wait_dst[wait], NO_ENDER
                    break
                message[hops] = ended_by
                vertex = sender[ended_by] if sent[ended_by] > stop_ns else -1
            else:
                while (
                    edge > 0
                    and local_end[first + edge - 1] > stop_ns
                    and local_dst[edge - 1] >> POSITION_BITS == vertex >> POSITION_BITS
                ):
                    edge -= 1
                low[hops], vertex = first + edge, -1
            hops += 1
        if outcome != REACHED_START:
            failed = index
            break
    return Hops(number[:hops], low[:hops], high[:hops], message[:hops]), failed, outcome, vertex


@kernel
def last_edges(edges: Edges, windows: Windows) -> tuple[I64, I64]:
    """Choose the edges on which the critical paths of windows end.

    Parameters
    ----------
    edges, windows
        Edges of windows.

    Returns
    -------
    edge
        Per window: the local edge, or the birth, that leads to the vertex that closes it. Without one, the first local
        edge of somebody at work; where nobody is, that of whoever came to rest last (ties: the lowest worker); where
        everybody waits, the message under way that was sent last (ties: the lowest sender), or the first wait. -1 where
        no edge ends at, or crosses, the window's end.
    ends
        How many workers are at work where the window ends; where none is, how many rest there. If a vertex closes the
        window: how many end their work at that very instant, itself included.

    Notes
    -----
    O(edges). Definition: `docs/model.md`, "Critical path".

    Examples
    --------
    Two workers work where a window ends, at 9.

    >>> first, src, dst = np.array([0, 2]), np.array([1, 2]), np.array([3, (1 << POSITION_BITS) | 2])
    >>> edges = Edges(first, src, dst, np.array([0, 5]), np.array([9, 12]), np.array([WORK, WORK], np.int8))
    >>> last_edges(edges, Windows(np.array([0]), np.array([9]), np.array([-1])))
    (array([0]), array([2]))
    """
    chosen, ends = np.empty(windows.end.shape[0], np.int64), np.empty(windows.end.shape[0], np.int64)
    for window in range(chosen.shape[0]):
        low, high = edges.first[window], edges.first[window + 1]
        chosen[window], ends[window] = _last_edge(edges, low, high, windows.end[window], windows.end_vertex[window])
    return chosen, ends


@kernel
def _last_edge(edges: Edges, low: int, high: int, window_end: int, end_vertex: int) -> tuple[int, int]:
    """Do as `last_edges` for one window, whose edges are those from `low` to `high` (exclusive)."""
    # From 0, so that no place can be negative: half of the time.
    src, dst, role = edges.src[low:high], edges.dst[low:high], edges.role[low:high]
    start, end = edges.start[low:high], edges.end[low:high]
    working, until_end, rests, worker, active, last_rest, idle, latest = 0, 0, 0, -1, -1, -1, -1, -1
    for edge in range(high - low):
        if not start[edge] < window_end <= end[edge]:
            continue
        if role[edge] >= MESSAGE:
            sent_later = latest < 0 or start[edge] > start[latest]
            if sent_later or (start[edge] == start[latest] and src[edge] < src[latest]):
                latest = edge
        elif role[edge] == WAIT:
            idle = edge if idle < 0 else idle
        else:
            # Several edges of one worker can touch the end only if some have no length; the first of them is taken.
            another = dst[edge] >> POSITION_BITS != worker
            worker = dst[edge] >> POSITION_BITS
            if role[edge] == REST:
                rests += another
                if last_rest < 0 or start[edge] > start[last_rest]:
                    last_rest = edge
            else:
                working += another
                closes = dst[edge] >> POSITION_BITS == end_vertex >> POSITION_BITS
                until_end += another and end[edge] == window_end and not closes
                active = edge if active < 0 else active
    ends = working if working > 0 else rests
    if end_vertex >= 0:
        closing = not_below(dst, end_vertex)
        while closing < dst.shape[0] and dst[closing] == end_vertex:
            if role[closing] != MESSAGE:
                return low + closing, until_end + 1
            closing += 1
        return -1, ends
    chosen = latest if latest >= 0 else idle
    if ends > 0:
        chosen = active if active >= 0 else last_rest
    return (low + chosen if chosen >= 0 else -1), ends


@kernel
def enders(wait_ends: Begun, messages: Messages) -> I64:
    """Find the message that ended each wait, and the spawn by which each worker was born.

    Parameters
    ----------
    wait_ends
        Where waits end, or workers are born.
    messages
        The messages of the same windows.

    Returns
    -------
    array of int64
        Per vertex: place of a message, or -1. Where several end at a wait's end, because what came earlier is read
        there too, the one sent last ended the wait (ties: the lowest sender). O(vertices log messages + messages).

    Examples
    --------
    >>> first, no = np.array([0, 2]), np.array([False, False])
    >>> enders(Begun(first, np.array([4, 8]), no), Messages(first, np.array([8, 8]), *np.array([[1, 2], [5, 5]]), no))
    array([-1,  1])
    """
    chosen = np.empty(wait_ends.dst.shape[0], np.int64)
    for window in range(wait_ends.first.shape[0] - 1):
        low, high = messages.first[window], messages.first[window + 1]
        message_dst, start, end = messages.dst[low:high], messages.start[low:high], messages.end[low:high]
        for place in range(wait_ends.first[window], wait_ends.first[window + 1]):
            vertex, best = wait_ends.dst[place], -1
            message = not_below(message_dst, vertex)
            while message < message_dst.shape[0] and message_dst[message] == vertex:
                fits = messages.spawn[low + message] == wait_ends.born[place] and start[message] <= end[message]
                if fits and (best < 0 or start[message] > start[best]):
                    best = message
                message += 1
            chosen[place] = low + best if best >= 0 else -1
    return chosen


def walk_windows(edges: Edges, windows: Windows) -> Paths:
    """Walk the critical paths of many windows.

    Parameters
    ----------
    edges, windows
        Edges of windows.

    Returns
    -------
    Paths
        Of all windows; worthless where one walk had to stop.

    Notes
    -----
    O(edges + hops log edges). Definitions: `docs/model.md`, "Critical path"; CPA Algorithm 1, Theorem 3.13.
    """
    first, src, dst, start, end, role = edges
    last, ends = last_edges(edges, windows)
    span = windows.end > windows.start
    ends[~span] = 0
    lost = np.flatnonzero(span & (last < 0))
    begins = np.flatnonzero(span & (last >= 0))
    # Everybody waits: the walk begins with the message under way, or with the wait itself. Or the window closes with a
    # birth.
    edge = last[begins]
    alone = (role[edge] >= MESSAGE) | (ends[begins] == 0)
    vertex = np.where(alone, np.where(start[edge] > windows.start[begins], src[edge], -1), dst[edge])
    walks = Walks(begins, np.where(alone, edge, -1), vertex, windows.start[begins])
    # A walk back leaves a worker where a wait ended, or where the worker was born.
    begin_edges, messages = np.flatnonzero((role == WAIT) | (role == SPAWN)), np.flatnonzero(role >= MESSAGE)
    begun_first, messages_first = np.searchsorted(begin_edges, first), np.searchsorted(messages, first)
    begun_dst, read_at, sent, arrived = read_only(dst[begin_edges], dst[messages], start[messages], end[messages])
    born, spawn = role[begin_edges] == SPAWN, role[messages] == SPAWN
    ender_of = enders(Begun(begun_first, begun_dst, born), Messages(messages_first, read_at, sent, arrived, spawn))
    (ended,) = read_only(end[begin_edges])
    waits = Waits(begun_first, begun_dst, ended, np.append(messages, -1)[ender_of])
    hops, failed, outcome, stopped_at = walk(walks, Local(first, dst, end), waits, Sends(src, start))
    failed = int(begins[failed]) if failed >= 0 else -1
    if len(lost) and not 0 <= failed < lost[0]:
        failed, outcome, stopped_at = int(lost[0]), NO_END, windows.end_vertex[lost[0]]
    number, path = _in_time_order(hops, role)
    return Paths(begins[number], path, ends, span & (ends == 0), failed, int(outcome), int(stopped_at))


def _in_time_order(hops: Hops, role: I8) -> tuple[I64, I64]:
    """Return the walk, and the edge, of everything that hops consist of; messages lie among their local edges, too."""
    bounds = np.searchsorted(hops.walk, np.arange(hops.walk[-1] + 2 if len(hops.walk) else 1))
    backwards = (bounds[:-1] + bounds[1:] - 1)[hops.walk] - np.arange(len(hops.walk))
    number, low, high, message = (column[backwards] for column in hops)
    # Before its local edges each has room for the message.
    lengths = high - low + 1
    ends = np.cumsum(lengths)
    edge = np.arange(ends[-1] if len(ends) else 0) + np.repeat(low - 1 - (ends - lengths), lengths)
    edge[ends - lengths] = message
    keep = role[edge] < MESSAGE
    keep[ends - lengths] = message >= 0
    return np.repeat(number, lengths)[keep], edge[keep]


def walk_waits(charged: I64, stop_ns: I64, local: Local, waits: Waits, sends: Sends) -> tuple[Hops, int, int]:
    """Walk back from the end of every wait to the instant at which it began.

    Parameters
    ----------
    charged, stop_ns
        Places in `waits` of the waits to walk back from, and the instant at which each walk stops.
    local, waits, sends
        The edges of one window.

    Returns
    -------
    hops
        Of walks numbered as in `charged`. One that begins before its walk stops has its first local edges cut by the
        caller; where the message crosses that instant there are none.
    outcome
        `REACHED_START`, or why a walk had to stop.
    vertex
        Where it stopped.

    Notes
    -----
    O(hops x log edges). The waits of a worker lie one after the other, so there are at most as many hops per worker as
    there are waits.
    """
    ended_by = waits.ender[charged]
    has_ender = ended_by >= 0
    vertex = np.full(len(ended_by), -1)
    vertex[has_ender] = np.where(
        sends.start[ended_by[has_ender]] > stop_ns[has_ender], sends.src[ended_by[has_ender]], -1
    )
    hops, failed, outcome, stopped_at = walk(
        Walks(np.zeros_like(ended_by), ended_by, vertex, stop_ns), local, waits, sends
    )
    lost = np.flatnonzero(~has_ender)
    if len(lost) and not 0 <= failed < lost[0]:
        return hops, NO_ENDER, int(waits.dst[charged[lost[0]]])
    return hops, int(outcome), int(stopped_at)
