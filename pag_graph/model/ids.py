"""Identity of vertices: one 64-bit integer that orders the events of a worker.

``id = worker << 40 | pos``. Slices of a trace number their vertices in parallel, because `pos` follows from the order
of an event on its worker alone. Vertices that a projection cuts out have negative ids and exist in no store.
"""

from __future__ import annotations

POSITION_BITS = 40
"""Bits of an id that hold the position on the worker; the bits above hold the worker."""

MAX_POSITION = (1 << POSITION_BITS) - 1
"""Largest position; half as many events fit on one worker (5.5e11)."""

MAX_WORKER = (1 << 22) - 1
"""Largest worker number that keeps ids positive and below 2^62."""


def vertex_id(worker: int, pos: int) -> int:
    """Return the id of a vertex.

    Parameters
    ----------
    worker
        Number of the worker, 0 to `MAX_WORKER`.
    pos
        Its position there, 0 to `MAX_POSITION`: twice the order of an event, from 1, or the odd number before that of
        the event which follows an inserted vertex. Neither is checked.

    Returns
    -------
    int
        Of one worker, ids ascend with the positions.

    Examples
    --------
    >>> vertex_id(1, 2) == (1 << 40) + 2
    True
    """
    return worker << POSITION_BITS | pos


def worker_of(vertex: int) -> int:
    """Return the worker of a vertex id.

    Examples
    --------
    >>> worker_of(vertex_id(7, 12))
    7
    """
    return vertex >> POSITION_BITS


def position_of(vertex: int) -> int:
    """Return the position of a vertex id on its worker.

    Examples
    --------
    >>> position_of(vertex_id(7, 12))
    12
    """
    return vertex & MAX_POSITION
