"""The critical path by contraction: from wait to wait, over the messages that ended them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pag_graph.kernels.compiling import kernel
from pag_graph.kernels.search import above, grown, not_below
from pag_graph.model.ids import POSITION_BITS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pag_graph.kernels.activations import I64

    Bools = NDArray[np.bool_]

# How a walk ended.
REACHED_START, GAP, CYCLE, NO_ENDER, NO_END = 0, 1, 2, 3, 4


@kernel
def walk_back(
    last_vertex: int,
    local_dst: I64,
    local_end: I64,
    wait_dst: I64,
    wait_end: I64,
    ender: I64,
    ender_src: I64,
    ender_start: I64,
    window_start: int,
) -> tuple[I64, I64, I64, int, int]:
    """Walk from a vertex back to the start of the window.

    Parameters
    ----------
    last_vertex
        Where to begin.
    local_dst, local_end
        Local edges of the window, waits included, sorted by `dst`, with their end times.
    wait_dst, wait_end
        Where waits end and workers are born, sorted by vertex, with the times.
    ender
        The same: index of the message edge that ended the wait, or of the spawn, or -1.
    ender_src, ender_start
        Per message edge that `ender` refers to: vertex and time of its send.
    window_start
        Start of the window.

    Returns
    -------
    low, high
        Per hop, latest first: the hop's local edges are those from `low` to `high` (exclusive).
    message
        Per hop: the message edge before its first local edge, or -1 where the window starts. A worker that spawns
        another with the very event that it is born with has no local edge in between.
    outcome
        `REACHED_START`, or why the walk had to stop.
    vertex
        Where it stopped.

    Notes
    -----
    O(hops x log edges). Times never increase along the walk, and positions fall wherever a worker is visited again;
    more hops than waits can only be a cycle.
    """
    most = wait_dst.shape[0] + 2
    low, high, message = np.empty(most, np.int64), np.empty(most, np.int64), np.empty(most, np.int64)
    vertex, hops, outcome = last_vertex, 0, CYCLE
    while hops < most and outcome == CYCLE:
        wait = above(wait_dst, vertex) - 1
        high[hops] = above(local_dst, vertex)
        edge = high[hops] - 1
        if not ((edge >= 0 and local_dst[edge] == vertex) or (wait >= 0 and wait_dst[wait] == vertex)):
            outcome = GAP
            break
        inside = wait >= 0 and wait_dst[wait] >> POSITION_BITS == vertex >> POSITION_BITS
        message[hops] = -1
        if inside and wait_end[wait] > window_start:
            low[hops] = above(local_dst, wait_dst[wait])
            by = ender[wait]
            if by < 0:
                vertex, outcome = wait_dst[wait], NO_ENDER
            else:
                message[hops], vertex = by, ender_src[by]
                if ender_start[by] <= window_start:
                    outcome = REACHED_START
        else:
            first = edge
            while (
                first > 0
                and local_end[first - 1] > window_start
                and local_dst[first - 1] >> POSITION_BITS == vertex >> POSITION_BITS
            ):
                first -= 1
            low[hops] = first
            outcome = REACHED_START
        hops += 1
    return low[:hops], high[:hops], message[:hops], outcome, vertex


@kernel
def last_edge(
    src: I64,
    dst: I64,
    start: I64,
    end: I64,
    message: Bools,
    waiting: Bools,
    resting: Bools,
    spawn: Bools,
    window_end: int,
    end_vertex: int,
) -> tuple[int, int]:
    """Choose the edge on which the critical path of a window ends.

    Parameters
    ----------
    src, dst, start, end, message, waiting, resting, spawn
        Edges of the window, sorted by `dst`, local ones before messages, and by `src`. Whoever rests does nothing, as
        far as anybody knows, and waits for no worker.
    window_end
        Where it ends.
    end_vertex
        The vertex that closes it, or -1.

    Returns
    -------
    edge
        The local edge, or the birth, that leads to the vertex that closes the window. Without one, the first local edge
        of somebody at work; where nobody is, that of whoever came to rest last (ties: the lowest worker); where
        everybody waits, the message under way that was sent last (ties: the lowest sender), or the first wait. -1 where
        no edge ends at, or crosses, the window's end.
    ends
        How many workers are at work where the window ends; where none is, how many rest there. If a vertex closes the
        window: how many end their work at that very instant, itself included.
    """
    working, until, rests, worker, active, rest, idle, latest = 0, 0, 0, -1, -1, -1, -1, -1
    for edge in range(dst.shape[0]):
        if not start[edge] < window_end <= end[edge]:
            continue
        if message[edge]:
            if latest < 0 or (-start[edge], src[edge]) < (-start[latest], src[latest]):
                latest = edge
        elif waiting[edge]:
            idle = edge if idle < 0 else idle
        else:
            # Several edges of one worker can touch the end only if some have no length; the first of them is taken.
            another = dst[edge] >> POSITION_BITS != worker
            worker = dst[edge] >> POSITION_BITS
            if resting[edge]:
                rests += another
                if rest < 0 or start[edge] > start[rest]:
                    rest = edge
            else:
                working += another
                closes = dst[edge] >> POSITION_BITS == end_vertex >> POSITION_BITS
                until += another and end[edge] == window_end and not closes
                active = edge if active < 0 else active
    ends = working if working > 0 else rests
    if end_vertex >= 0:
        at = not_below(dst, end_vertex)
        while at < dst.shape[0] and dst[at] == end_vertex:
            if not message[at] or spawn[at]:
                return at, until + 1
            at += 1
        return -1, ends
    if ends > 0:
        return (active if active >= 0 else rest), ends
    return (latest if latest >= 0 else idle), 0


@kernel
def enders(
    dst: I64,
    born: Bools,
    message_dst: I64,
    message_start: I64,
    message_end: I64,
    spawn: Bools,
) -> I64:
    """Find the message that ended each wait, and the spawn by which each worker was born.

    Parameters
    ----------
    dst, born
        Vertices where waits end, or workers are born.
    message_dst, message_start, message_end, spawn
        Messages, sorted by `dst` and `src`.

    Returns
    -------
    I64
        Per vertex: index of a message, or -1. Where several end at a wait's end, because it is read there too what
        came earlier, the one sent last ended the wait (ties: the lowest sender).
    """
    result = np.empty(dst.shape[0], np.int64)
    for place in range(dst.shape[0]):
        result[place] = -1
        at = not_below(message_dst, dst[place])
        while at < message_dst.shape[0] and message_dst[at] == dst[place]:
            best = result[place]
            fits = spawn[at] == born[place] and message_start[at] <= message_end[at]
            if fits and (best < 0 or message_start[at] > message_start[best]):
                result[place] = at
            at += 1
    return result


@kernel
def last_edges(
    first: I64,
    src: I64,
    dst: I64,
    start: I64,
    end: I64,
    message: Bools,
    waiting: Bools,
    resting: Bools,
    spawn: Bools,
    window_end: I64,
    end_vertex: I64,
) -> tuple[I64, int]:
    """Choose the edges on which the critical paths of many windows end.

    Parameters
    ----------
    first, src, dst, start, end, message, waiting, resting, spawn, window_end, end_vertex
        As for `walk_windows`.

    Returns
    -------
    edge
        Per window.
    failed
        A window where no edge ends at, or crosses, its end; or -1.
    """
    chosen = np.full(first.shape[0] - 1, -1, np.int64)
    for window in range(chosen.shape[0]):
        low, high = first[window], first[window + 1]
        at, _ = last_edge(
            src[low:high],
            dst[low:high],
            start[low:high],
            end[low:high],
            message[low:high],
            waiting[low:high],
            resting[low:high],
            spawn[low:high],
            window_end[window],
            end_vertex[window],
        )
        if at < 0:
            return chosen, window
        chosen[window] = low + at
    return chosen, -1


@kernel
def walk_windows(
    first: I64,
    src: I64,
    dst: I64,
    start: I64,
    end: I64,
    message: Bools,
    waiting: Bools,
    resting: Bools,
    spawn: Bools,
    window_start: I64,
    window_end: I64,
    end_vertex: I64,
) -> tuple[I64, I64, I64, Bools, int, int, int]:
    """Walk the critical paths of many windows.

    Parameters
    ----------
    first
        Shape (windows + 1,): where the edges of each window begin.
    src, dst, start, end, message, waiting, resting, spawn
        Per edge, sorted by `dst` within its window, local ones before messages, and by `src`.
    window_start, window_end, end_vertex
        Per window; -1 where no vertex closes it.

    Returns
    -------
    path_first
        Shape (windows + 1,): where the path of each window begins.
    path
        Indices of the edges, in time order.
    ends, all_waiting
        Per window: how many workers its path may end on, as `last_edge` has it; and whether all wait.
    failed, outcome, vertex
        A window whose walk had to stop, why, and where; -1, `REACHED_START` and 0 where there is none. The outcome
        `NO_END` says that no edge ends at, or crosses, the window's end.
    """
    windows = first.shape[0] - 1
    path_first = np.zeros(windows + 1, np.int64)
    path = np.empty(max(1024, first[windows] // 8), np.int64)
    count = 0
    ends, all_waiting = np.zeros(windows, np.int64), np.zeros(windows, np.bool_)
    failed, outcome, where = -1, REACHED_START, 0
    for window in range(windows):
        path_first[window] = count
        if window_end[window] <= window_start[window]:
            continue
        low, high = first[window], first[window + 1]
        into, until = dst[low:high], end[low:high]
        at, active = last_edge(
            src[low:high],
            into,
            start[low:high],
            until,
            message[low:high],
            waiting[low:high],
            resting[low:high],
            spawn[low:high],
            window_end[window],
            end_vertex[window],
        )
        if at < 0:
            failed, outcome, where = window, NO_END, end_vertex[window]
            break
        ends[window], all_waiting[window] = active, active == 0
        # The way back leaves a worker where a wait ended, or where it was born.
        begun, messages = _places(waiting, spawn, low, high), _places(message, message, low, high)
        begun_at, sent = _taken(dst, begun), _taken(start, messages)
        ender = enders(
            begun_at, _flags(spawn, begun), _taken(dst, messages), sent, _taken(end, messages), _flags(spawn, messages)
        )
        last, vertex = low + at, -1
        if message[last] or active == 0:
            # Everybody waits: the walk begins with the message under way, or with the wait itself. Or the window
            # closes with a birth.
            if start[last] > window_start[window]:
                vertex = src[last]
        else:
            last, vertex = -1, dst[last]
        begin = count
        if last >= 0:
            path = grown(path, count, count + 1)
            path[count] = last
            count += 1
        if vertex >= 0:
            # Messages lie among the local edges here; they lead to vertices that those lead to, at the same time.
            lows, highs, by, outcome, where = walk_back(
                vertex,
                into,
                until,
                begun_at,
                _taken(end, begun),
                ender,
                _taken(src, messages),
                sent,
                window_start[window],
            )
            if outcome != REACHED_START:
                failed = window
                break
            room = count + lows.shape[0]
            for hop in range(lows.shape[0]):
                room += highs[hop] - lows[hop]
            path = grown(path, count, room)
            for hop in range(lows.shape[0]):
                for edge in range(low + highs[hop] - 1, low + lows[hop] - 1, -1):
                    if not message[edge]:
                        path[count] = edge
                        count += 1
                if by[hop] >= 0:
                    path[count] = messages[by[hop]]
                    count += 1
        for near in range((count - begin) // 2):
            path[begin + near], path[count - 1 - near] = path[count - 1 - near], path[begin + near]
    if failed < 0:
        # Where the last walk led to matters to nobody.
        path_first[windows], where = count, 0
    return path_first, path[:count], ends, all_waiting, failed, outcome, where


@kernel
def _places(one: Bools, other: Bools, low: int, high: int) -> I64:
    """Return the places from `low` to `high` (exclusive) where one of two things holds."""
    # Written for every place, counted for some: without a branch, and in one pass.
    places = np.empty(high - low + 1, np.int64)
    count = 0
    for place in range(low, high):
        places[count] = place
        count += one[place] | other[place]
    return places[:count]


@kernel
def _taken(values: I64, places: I64) -> I64:
    taken = np.empty(places.shape[0], np.int64)
    for at in range(places.shape[0]):
        taken[at] = values[places[at]]
    return taken


@kernel
def _flags(values: Bools, places: I64) -> Bools:
    taken = np.empty(places.shape[0], np.bool_)
    for at in range(places.shape[0]):
        taken[at] = values[places[at]]
    return taken
