"""Which message ended each wait that a source states."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pag_graph.kernels import NEVER
from pag_graph.kernels.activations import I8, I32, I64, START
from pag_graph.kernels.compiling import kernel
from pag_graph.kernels.search import not_below
from pag_graph.kernels.waits import Clocks, slop

# Verdicts.
ENDED, NO_TIME, NOTHING_CAME = 0, 1, 2


class Stretches(NamedTuple):
    """Stretches of waiting, in log order; one element each."""

    row: I64
    """The row that ends one."""
    begin: I64
    """When it begins (ns)."""


class Rows(NamedTuple):
    """Rows of one worker in log order."""

    t: I64
    """Nanoseconds since the run's origin."""
    kind: I8
    """Codes of `pag_graph.kernels.activations`."""
    sender: I64
    """For rows that read a message: the worker that sent it."""


class Reads(NamedTuple):
    """Rows that read a message, ascending; one element per read."""

    row: I32
    """Its place among the worker's rows."""
    sent: I64
    """When it was sent (ns, common clock); `NEVER` where that is not known."""
    send_id: I64
    """Id of the vertex that sent it; only read where `sent` is known."""


@kernel
def judge_waits(waits: Stretches, rows: Rows, reads: Reads, clocks: Clocks) -> tuple[I8, I64, I64]:
    """Say which message ended each stretch of waiting.

    Parameters
    ----------
    waits
        The stretches.
    rows, reads
        The worker's rows.
    clocks
        Its clock, and those of others.

    Returns
    -------
    verdict
        Per stretch: `ENDED` by a message; `NO_TIME` for what is left of a wait in the instant in which it ended; or
        `NOTHING_CAME`.
    ender
        Per stretch: the row that reads the message that ended it, or -1.
    alternatives
        Per stretch: how many other messages may have been the last, within the clocks' uncertainty.

    Notes
    -----
    Of the messages that are read in the instant in which a stretch ends, before another activity starts, the one sent
    last ended it (ties: the lowest vertex): a worker that waits for several goes on with the last of them. Every row is
    looked at once per stretch that ends in its instant with time behind it: O(rows).

    Examples
    --------
    Worker 1 waits from 10 to 50, when it reads what worker 0 sent at 40.

    >>> rows = Rows(np.array([50, 50]), np.array([1, 3], np.int8), np.array([-1, 0]))
    >>> reads, clocks = Reads(np.array([1], np.int32), np.array([40]), np.array([2])), np.zeros((2, 2), np.int64)
    >>> judge_waits(Stretches(np.array([0]), np.array([10])), rows, reads, Clocks(1, *clocks))
    (array([0], dtype=int8), array([1]), array([0]))
    """
    t = rows.t
    count = waits.row.shape[0]
    verdict = np.full(count, NOTHING_CAME, np.int8)
    ender, alternatives = np.full(count, -1, np.int64), np.zeros(count, np.int64)
    judged = NEVER
    for wait in range(count):
        first = waits.row[wait]
        end = t[first]
        if waits.begin[wait] == end and judged == end:
            verdict[wait] = NO_TIME
            continue
        judged = end
        after = first
        while after < t.shape[0] and t[after] == end and rows.kind[after] != START:
            after += 1
        low, high = not_below(reads.row, first), not_below(reads.row, after)
        best = -1
        for read in range(low, high):
            sent = reads.sent[read]
            if sent != NEVER and rows.sender[reads.row[read]] != clocks.worker and sent <= end:
                later = best < 0 or sent > reads.sent[best]
                if later or (sent == reads.sent[best] and reads.send_id[read] < reads.send_id[best]):
                    best = read
        if best >= 0:
            verdict[wait], ender[wait] = ENDED, reads.row[best]
            least = slop(rows.sender[reads.row[best]], clocks)
            for read in range(low, high):
                sender, sent = rows.sender[reads.row[read]], reads.sent[read]
                if sent == NEVER or sender == clocks.worker or sent > end or read == best:
                    continue
                alternatives[wait] += reads.sent[best] - sent <= max(slop(sender, clocks), least)
        elif waits.begin[wait] == end:
            verdict[wait] = NO_TIME
    return verdict, ender, alternatives
