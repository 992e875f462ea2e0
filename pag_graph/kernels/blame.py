"""What happened elsewhere while workers waited: the paths back from the ends of waits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pag_graph.kernels.compiling import kernel
from pag_graph.kernels.path import CYCLE, GAP, NO_ENDER, REACHED_START
from pag_graph.kernels.search import above, grown
from pag_graph.model.ids import POSITION_BITS

if TYPE_CHECKING:
    from pag_graph.kernels.activations import I64


@kernel
def walk_waits(
    charged: I64,
    since: I64,
    local_dst: I64,
    local_end: I64,
    wait_dst: I64,
    wait_end: I64,
    ender: I64,
    ender_src: I64,
    ender_start: I64,
) -> tuple[I64, I64, I64, I64, int, int]:
    """Walk back from the end of every wait to the instant at which it began.

    Parameters
    ----------
    charged, since
        Places in `wait_dst` of the waits to walk back from, and the instant at which each walk stops.
    local_dst, local_end
        Local edges, waits included, sorted by `dst`, with their end times.
    wait_dst, wait_end
        Where waits end and workers are born, sorted by vertex, with the times.
    ender
        The same: index of the message edge that ended the wait, or of the spawn, or -1.
    ender_src, ender_start
        Per message edge: vertex and time of its send.

    Returns
    -------
    wait, low, high, message
        Per hop: index in `charged`, the message edge that the hop begins with, and the local edges from `low` to
        `high` (exclusive) before it. A hop that begins before the walk stops has its first local edges cut by the
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
    room = max(16, 2 * charged.shape[0])
    wait = np.empty(room, np.int64)
    low = np.empty(room, np.int64)
    high = np.empty(room, np.int64)
    message = np.empty(room, np.int64)
    hops, outcome, vertex = 0, REACHED_START, 0
    most = wait_dst.shape[0] + 1
    for index in range(charged.shape[0]):
        stop = since[index]
        current = charged[index]
        steps = 0
        while True:
            by = ender[current]
            if by < 0:
                outcome, vertex = NO_ENDER, wait_dst[current]
                break
            if hops == wait.shape[0]:
                wait, low = grown(wait, hops, hops + 1), grown(low, hops, hops + 1)
                high, message = grown(high, hops, hops + 1), grown(message, hops, hops + 1)
            wait[hops], low[hops], high[hops], message[hops] = index, 0, 0, by
            hops += 1
            steps += 1
            if ender_start[by] <= stop:
                break
            if steps > most:
                outcome, vertex = CYCLE, ender_src[by]
                break
            sender = ender_src[by]
            edge = above(local_dst, sender) - 1
            before = above(wait_dst, sender) - 1
            if (edge < 0 or local_dst[edge] != sender) and (before < 0 or wait_dst[before] != sender):
                outcome, vertex = GAP, sender
                break
            low[hops - 1] = high[hops - 1] = edge + 1
            on_worker = before >= 0 and wait_dst[before] >> POSITION_BITS == sender >> POSITION_BITS
            first = edge
            if on_worker and wait_end[before] > stop:
                low[hops - 1] = above(local_dst, wait_dst[before])
                current = before
                continue
            while (
                first > 0
                and local_end[first - 1] > stop
                and local_dst[first - 1] >> POSITION_BITS == sender >> POSITION_BITS
            ):
                first -= 1
            low[hops - 1] = first
            break
        if outcome != REACHED_START:
            break
    return wait[:hops], low[:hops], high[:hops], message[:hops], outcome, vertex
