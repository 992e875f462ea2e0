"""Which message ended each wait that a source states."""

from __future__ import annotations

import numpy as np

from pag_graph.kernels.activations import I8, I32, I64, START
from pag_graph.kernels.compiling import kernel
from pag_graph.kernels.waits import slop

# Verdicts.
ENDED, NO_TIME, NOTHING_CAME = 0, 1, 2


@kernel
def judge_waits(
    wait_row: I64,
    begin: I64,
    t: I64,
    kind: I8,
    reads: I32,
    sent: I64,
    send_id: I64,
    sender: I64,
    worker: int,
    processes: I64,
    uncertainty: I64,
) -> tuple[I8, I64, I64]:
    """Say which message ended each stretch of waiting.

    Parameters
    ----------
    wait_row, begin
        Per stretch, in order: the row that ends it, and the time at which it begins.
    t, kind
        Rows of the worker in log order.
    reads
        Rows that read a message, ascending.
    sent, send_id
        Per row that reads a message: when it was sent (common clock), the smallest integer where that is not known,
        and which vertex sent it.
    sender
        Per row of the worker; for those that read a message: the worker that sent it.
    worker
        The worker.
    processes, uncertainty
        Per worker of the run: its process, and how far its clock may be off from another process' one.

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
    last ended it (ties: the lowest vertex): whoever waits for several goes on with the last of them. Every row is
    looked at once per stretch that ends in its instant with time behind it: O(rows).
    """
    count = wait_row.shape[0]
    verdict = np.full(count, NOTHING_CAME, np.int8)
    ender = np.full(count, -1, np.int64)
    alternatives = np.zeros(count, np.int64)
    never = np.iinfo(np.int64).min
    judged = never
    for i in range(count):
        first = wait_row[i]
        end = t[first]
        if begin[i] == end and judged == end:
            verdict[i] = NO_TIME
            continue
        judged = end
        until = first
        while until < t.shape[0] and t[until] == end and kind[until] != START:
            until += 1
        low, high = np.searchsorted(reads, first), np.searchsorted(reads, until)
        best = -1
        for read in range(low, high):
            if sent[read] != never and sender[reads[read]] != worker and sent[read] <= end:
                later = best < 0 or sent[read] > sent[best]
                if later or (sent[read] == sent[best] and send_id[read] < send_id[best]):
                    best = read
        if best >= 0:
            verdict[i], ender[i] = ENDED, reads[best]
            least = slop(sender[reads[best]], worker, processes, uncertainty)
            for other in range(low, high):
                who = sender[reads[other]]
                if sent[other] == never or who == worker or sent[other] > end or other == best:
                    continue
                if sent[best] - sent[other] <= max(slop(who, worker, processes, uncertainty), least):
                    alternatives[i] += 1
        elif begin[i] == end:
            verdict[i] = NO_TIME
    return verdict, ender, alternatives
