"""The critical path by contraction: from wait to wait, over the messages that ended them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numba
import numpy as np

from pag_graph.model.ids import POSITION_BITS

if TYPE_CHECKING:
    from pag_graph.kernels.activations import I64

# How a walk ended.
REACHED_START, GAP, CYCLE, NO_ENDER = 0, 1, 2, 3


@numba.njit(cache=True)
def walk_back(
    last_edge: int,
    local_dst: I64,
    local_end: I64,
    wait_dst: I64,
    wait_end: I64,
    ender: I64,
    ender_src: I64,
    ender_start: I64,
    window_start: int,
) -> tuple[I64, I64, I64, int, int]:
    """Walk from a local edge back to the start of the window.

    Parameters
    ----------
    last_edge
        Index of the local edge to begin with.
    local_dst, local_end
        Local edges of the window, waits included, sorted by `dst`, with their end times.
    wait_dst, wait_end
        The waits among them, sorted by `dst`, with their end times.
    ender
        Per wait: index of the message edge that ended it, or -1.
    ender_src, ender_start
        Per message edge that `ender` refers to: vertex and time of its send.
    window_start
        Start of the window.

    Returns
    -------
    low, high
        Per hop, latest first: the hop's local edges are those from `low` to `high` (exclusive).
    message
        Per hop: the message edge before its first local edge, or -1 where the window starts.
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
    edge = last_edge
    for hop in range(hops):
        vertex = local_dst[edge]
        wait = np.searchsorted(wait_dst, vertex, side="right") - 1
        high[hop] = edge + 1
        inside = wait >= 0 and wait_dst[wait] >> POSITION_BITS == vertex >> POSITION_BITS
        if inside and wait_end[wait] > window_start:
            low[hop] = np.searchsorted(local_dst, wait_dst[wait], side="right")
            if ender[wait] < 0:
                return low[: hop + 1], high[: hop + 1], message[: hop + 1], NO_ENDER, wait_dst[wait]
            message[hop] = ender[wait]
            if ender_start[ender[wait]] <= window_start:
                return low[: hop + 1], high[: hop + 1], message[: hop + 1], REACHED_START, ender_src[ender[wait]]
            sender = ender_src[ender[wait]]
            edge = np.searchsorted(local_dst, sender, side="left")
            if edge == local_dst.shape[0] or local_dst[edge] != sender:
                return low[: hop + 1], high[: hop + 1], message[: hop + 1], GAP, sender
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
    return low, high, message, CYCLE, local_dst[edge]
