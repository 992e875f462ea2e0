"""What an idle interval was: which message ended it, or why it was no wait."""

from __future__ import annotations

import numpy as np

from pag_graph.kernels.activations import I8, I32, I64, INFERRED, PROCESSING, START
from pag_graph.kernels.compiling import kernel

# Verdicts.
WAITING, BUSY, IDLE, INPUT_WAIT, UNKNOWN = 0, 1, 2, 3, 4


@kernel
def slop(sender: int, worker: int, processes: I64, uncertainty: I64) -> int:
    """Return how far the clocks of two workers may disagree: not at all within a process."""
    return 0 if processes[sender] == processes[worker] else uncertainty[sender] + uncertainty[worker]


@kernel
def _works(kind: I8, role: I8, low: int, high: int) -> bool:
    """Say whether an activation that does work starts in rows `low` to `high` (exclusive)."""
    row = low
    while row < high and not (kind[row] == START and role[row] in (PROCESSING, INFERRED)):
        row += 1
    return row < high


@kernel
def judge_intervals(
    t: I64,
    kind: I8,
    role: I8,
    timeout: I64,
    parks: I64,
    unparks: I64,
    last_parks: I64,
    reads: I32,
    sent: I64,
    sender: I64,
    channel: I64,
    message_seq: I64,
    worker: int,
    processes: I64,
    uncertainty: I64,
    busy_below_ns: int,
) -> tuple[I8, I64, I64, I64]:
    """Judge every candidate idle interval of one worker (`contracts`: ender of an interval).

    Parameters
    ----------
    t, kind, role, timeout
        Rows of the worker in log order; `role` from `activations`.
    parks, unparks, last_parks
        The intervals, from `idle_intervals`.
    reads, sent
        Rows that read a message, ascending, and when each of those messages was sent (common clock), or later, if it is
        known not to have arrived then; the smallest integer where that is not known.
    sender, channel, message_seq
        Per row of the worker; for those that read a message: its key.
    worker
        The worker.
    processes, uncertainty
        Per worker of the run: its process, and how far its clock may be off from another process' one.
    busy_below_ns
        Unexplained intervals shorter than this are `BUSY`, longer ones `UNKNOWN`.

    Returns
    -------
    verdict
        Per interval.
    ender
        Per interval: the row that reads the message that ended it, or -1.
    arrival
        Per interval: when that message arrived.
    alternatives
        Per interval: how many other messages may have ended it, within the clocks' uncertainty.

    Notes
    -----
    Messages that are read after the interval and before the next one are looked at once: O(rows).

    A message of the same process arrives when it is sent. One of another process arrives, for all one can tell from
    the worker's log, when the worker is unparked.
    """
    count = parks.shape[0]
    rows = t.shape[0]
    verdict = np.full(count, UNKNOWN, np.int8)
    ender = np.full(count, -1, np.int64)
    arrival = np.zeros(count, np.int64)
    alternatives = np.zeros(count, np.int64)
    never = np.iinfo(np.int64).min
    upto = 0
    for i in range(count):
        begin, end = t[parks[i]], t[unparks[i]]
        until = parks[i + 1] if i + 1 < count else rows
        first = upto
        while first < reads.shape[0] and reads[first] < unparks[i]:
            first += 1
        upto = first
        while upto < reads.shape[0] and reads[upto] <= until:
            upto += 1
        buffered = False
        inside, before = -1, -1
        inside_key = (0, 0, 0, 0, 0)
        before_key = (0, 0, 0, 0, 0)
        for read in range(first, upto):
            row, when = reads[read], sent[read]
            if when == never:
                continue
            same_process = processes[sender[row]] == processes[worker]
            if same_process and when < begin:
                buffered = True
                break
            if sender[row] == worker or when > end or when > t[row]:
                continue
            arrived = when if same_process else end
            if when >= begin:
                key = (when, arrived, sender[row], channel[row], message_seq[row])
                if inside < 0 or key < inside_key:
                    inside, inside_key = read, key
            else:
                key = (-when, arrived, sender[row], channel[row], message_seq[row])
                if before < 0 or key < before_key:
                    before, before_key = read, key
        if buffered:
            verdict[i] = BUSY
            continue
        chosen = inside if inside >= 0 else before
        if chosen >= 0:
            verdict[i] = WAITING
            ender[i] = reads[chosen]
            who = sender[reads[chosen]]
            arrival[i] = sent[chosen] if processes[who] == processes[worker] else end
            least = slop(who, worker, processes, uncertainty)
            for other in range(first, upto):
                row, when = reads[other], sent[other]
                if other == chosen or when == never or sender[row] == worker:
                    continue
                if when > end or when > t[row] or (when >= begin) != (inside >= 0):
                    continue
                most = max(slop(sender[row], worker, processes, uncertainty), least)
                if abs(when - sent[chosen]) <= most:
                    alternatives[i] += 1
        elif timeout[last_parks[i]] >= 0 and end - t[last_parks[i]] >= timeout[last_parks[i]]:
            verdict[i] = IDLE
        elif _works(kind, role, unparks[i], until):
            verdict[i] = INPUT_WAIT
        elif end - begin < busy_below_ns:
            verdict[i] = BUSY
    return verdict, ender, arrival, alternatives
