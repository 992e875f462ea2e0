"""The critical path by contraction: from wait to wait, over the messages that ended them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numba
import numpy as np

from pag_graph.model.ids import POSITION_BITS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pag_graph.kernels.activations import I64

    Bools = NDArray[np.bool_]

# How a walk ended.
REACHED_START, GAP, CYCLE, NO_ENDER, NO_END = 0, 1, 2, 3, 4


@numba.njit(cache=True)
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
    hops = wait_dst.shape[0] + 2
    low = np.empty(hops, np.int64)
    high = np.empty(hops, np.int64)
    message = np.full(hops, -1, np.int64)
    vertex = last_vertex
    for hop in range(hops):
        wait = np.searchsorted(wait_dst, vertex, side="right") - 1
        high[hop] = np.searchsorted(local_dst, vertex, side="right")
        edge = high[hop] - 1
        if not ((edge >= 0 and local_dst[edge] == vertex) or (wait >= 0 and wait_dst[wait] == vertex)):
            return low[:hop], high[:hop], message[:hop], GAP, vertex
        inside = wait >= 0 and wait_dst[wait] >> POSITION_BITS == vertex >> POSITION_BITS
        if inside and wait_end[wait] > window_start:
            low[hop] = np.searchsorted(local_dst, wait_dst[wait], side="right")
            if ender[wait] < 0:
                return low[: hop + 1], high[: hop + 1], message[: hop + 1], NO_ENDER, wait_dst[wait]
            message[hop] = ender[wait]
            if ender_start[ender[wait]] <= window_start:
                return low[: hop + 1], high[: hop + 1], message[: hop + 1], REACHED_START, ender_src[ender[wait]]
            vertex = ender_src[ender[wait]]
        else:
            first = edge
            while (
                first > 0
                and local_end[first - 1] > window_start
                and local_dst[first - 1] >> POSITION_BITS == vertex >> POSITION_BITS
            ):
                first -= 1
            low[hop] = first
            return low[: hop + 1], high[: hop + 1], message[: hop + 1], REACHED_START, vertex
    return low, high, message, CYCLE, vertex


@numba.njit(cache=True)
def last_edge(
    local_start: I64,
    local_end: I64,
    local_dst: I64,
    waiting: Bools,
    message_src: I64,
    message_dst: I64,
    message_start: I64,
    message_end: I64,
    spawn: Bools,
    window_end: int,
    end_vertex: int,
) -> tuple[int, int, int]:
    """Choose the edge on which the critical path of a window ends.

    Parameters
    ----------
    local_start, local_end, local_dst, waiting
        Local edges of the window, sorted by `dst`.
    message_src, message_dst, message_start, message_end, spawn
        Its messages, sorted by `dst` and `src`.
    window_end
        Where it ends.
    end_vertex
        The vertex that closes it, or -1.

    Returns
    -------
    local
        Index of a local edge, or -1.
    message
        Index of a message, where everybody waits and one is under way, or the window closes with a birth; or -1.
        Where both are -1 there is no such edge.
    ends
        How many workers are active where the window ends.
    """
    ends, worker, active, idle = 0, -1, -1, -1
    for edge in range(local_dst.shape[0]):
        if local_start[edge] < window_end <= local_end[edge]:
            if waiting[edge]:
                idle = edge if idle < 0 else idle
                continue
            # Several edges of one worker can touch the end only if some have no length; the first of them is taken.
            active = edge if active < 0 else active
            if local_dst[edge] >> POSITION_BITS != worker:
                worker = local_dst[edge] >> POSITION_BITS
                ends += 1
    if end_vertex >= 0:
        at = np.searchsorted(local_dst, end_vertex)
        if at < local_dst.shape[0] and local_dst[at] == end_vertex:
            return int(at), -1, max(ends, 1)
        at = np.searchsorted(message_dst, end_vertex)
        while at < message_dst.shape[0] and message_dst[at] == end_vertex:
            if spawn[at]:
                return -1, int(at), max(ends, 1)
            at += 1
        return -1, -1, ends
    if active >= 0:
        return active, -1, ends
    latest = -1
    for edge in range(message_dst.shape[0]):
        if message_start[edge] < window_end <= message_end[edge] and (
            latest < 0
            or message_start[edge] > message_start[latest]
            or (
                message_start[edge] == message_start[latest]
                and (
                    message_src[edge] < message_src[latest]
                    or (message_src[edge] == message_src[latest] and message_dst[edge] < message_dst[latest])
                )
            )
        ):
            latest = edge
    return (-1, latest, 0) if latest >= 0 else (idle, -1, 0)


@numba.njit(cache=True)
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
    result = np.full(dst.shape[0], -1, np.int64)
    for place in range(dst.shape[0]):
        at = np.searchsorted(message_dst, dst[place])
        while at < message_dst.shape[0] and message_dst[at] == dst[place]:
            best = result[place]
            fits = spawn[at] == born[place] and message_start[at] <= message_end[at]
            if fits and (best < 0 or message_start[at] > message_start[best]):
                result[place] = at
            at += 1
    return result


@numba.njit(cache=True)
def last_edges(
    first: I64,
    src: I64,
    dst: I64,
    start: I64,
    end: I64,
    message: Bools,
    waiting: Bools,
    spawn: Bools,
    window_end: I64,
    end_vertex: I64,
) -> tuple[I64, int]:
    """Choose the edges on which the critical paths of many windows end.

    Parameters
    ----------
    first, src, dst, start, end, message, waiting, spawn, window_end, end_vertex
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
        edges = np.arange(first[window], first[window + 1])
        local, messages = edges[~message[edges]], edges[message[edges]]
        at, under_way, _ = last_edge(
            start[local],
            end[local],
            dst[local],
            waiting[local],
            src[messages],
            dst[messages],
            start[messages],
            end[messages],
            spawn[messages],
            window_end[window],
            end_vertex[window],
        )
        if at < 0 and under_way < 0:
            return chosen, window
        chosen[window] = messages[under_way] if under_way >= 0 else local[at]
    return chosen, -1


@numba.njit(cache=True)
def walk_windows(
    first: I64,
    src: I64,
    dst: I64,
    start: I64,
    end: I64,
    message: Bools,
    waiting: Bools,
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
    src, dst, start, end, message, waiting, spawn
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
        Per window: how many workers are active where it ends, and whether none is.
    failed, outcome, vertex
        A window whose walk had to stop, why, and where; -1, `REACHED_START` and 0 where there is none. The outcome
        `NO_END` says that no edge ends at, or crosses, the window's end.
    """
    windows = first.shape[0] - 1
    path_first = np.zeros(windows + 1, np.int64)
    path = np.empty(max(1024, first[windows] // 8), np.int64)
    count = 0
    ends, all_waiting = np.zeros(windows, np.int64), np.zeros(windows, np.bool_)
    for window in range(windows):
        path_first[window] = count
        if window_end[window] <= window_start[window]:
            continue
        edges = np.arange(first[window], first[window + 1])
        local, messages = edges[~message[edges]], edges[message[edges]]
        local_dst, local_end = dst[local], end[local]
        message_dst = dst[messages]
        at, under_way, active = last_edge(
            start[local],
            local_end,
            local_dst,
            waiting[local],
            src[messages],
            message_dst,
            start[messages],
            end[messages],
            spawn[messages],
            window_end[window],
            end_vertex[window],
        )
        if at < 0 and under_way < 0:
            return path_first, path, ends, all_waiting, window, NO_END, end_vertex[window]
        ends[window], all_waiting[window] = active, active == 0
        # The way back leaves a worker where a wait ended, or where it was born.
        begun = edges[waiting[edges] | spawn[edges]]
        ender = enders(dst[begun], spawn[begun], message_dst, start[messages], end[messages], spawn[messages])
        last, vertex = -1, -1
        if under_way >= 0 or active == 0:
            # Everybody waits: the walk begins with the message under way, or with the wait itself. Or the window
            # closes with a birth.
            last = messages[under_way] if under_way >= 0 else local[at]
            if start[last] > window_start[window]:
                vertex = src[last]
        else:
            vertex = local_dst[at]
        begin = count
        if last >= 0:
            path = _room(path, count + 1)
            path[count] = last
            count += 1
        if vertex >= 0:
            low, high, by, outcome, where = walk_back(
                vertex,
                local_dst,
                local_end,
                dst[begun],
                end[begun],
                ender,
                src[messages],
                start[messages],
                window_start[window],
            )
            if outcome != REACHED_START:
                return path_first, path, ends, all_waiting, window, outcome, where
            path = _room(path, count + np.sum(high - low) + low.shape[0])
            for hop in range(low.shape[0]):
                for edge in range(high[hop] - 1, low[hop] - 1, -1):
                    path[count] = local[edge]
                    count += 1
                if by[hop] >= 0:
                    path[count] = messages[by[hop]]
                    count += 1
        path[begin:count] = path[begin:count][::-1].copy()
    path_first[windows] = count
    return path_first, path[:count], ends, all_waiting, -1, REACHED_START, 0


@numba.njit(cache=True)
def _room(path: I64, wanted: int) -> I64:
    if wanted <= path.shape[0]:
        return path
    more = np.empty(max(wanted, 2 * path.shape[0]), np.int64)
    more[: path.shape[0]] = path
    return more
