"""A run whose messages to worker 0 are slow for a while, as its log grows."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING

from pag_graph.motif.alerts import Rule
from pag_graph.testing.traces import SmallTrace, draw

if TYPE_CHECKING:
    from collections.abc import Collection

WORKERS = 3
ROUND_NS = 400


def skewed_rounds(count: int, skewed: Collection[int], seed: int = 0) -> SmallTrace:
    """Draw rounds in which everybody sends to everybody: data, read in the round, and progress, read one round later.

    Parameters
    ----------
    count
        How many rounds.
    skewed
        Those in which data for worker 0 is read late.
    seed
        Of all that is random.
    """
    chance = random.Random(seed)
    logs: list[list[str]] = [[] for _ in range(WORKERS)]
    for epoch in range(count):
        start = epoch * ROUND_NS
        for worker, log in enumerate(logs):
            peers = [peer for peer in range(WORKERS) if peer != worker]
            sent_ns = start + 10 + chance.randrange(20)
            log.append(f"{start} start 1")
            log += [f"{sent_ns} send 3>{peer} #{epoch} *{1 + chance.randrange(5)}" for peer in peers]
            log.append(f"{sent_ns + 5} psend 9 #{epoch} | {sent_ns + 8} stop 1 | {sent_ns + 9} park")
            read_ns = start + (250 if worker == 0 and epoch in skewed else 60 + chance.randrange(20))
            log.append(f"{read_ns} unpark | {read_ns} start 2")
            log += [f"{read_ns + 1} recv 3<{peer} #{epoch} *1" for peer in peers]
            # Progress of the round before, one's own too: the round is answered when it is read.
            log += [f"{read_ns + 2} precv 9<{peer} #{epoch - 1}" for peer in range(WORKERS) if epoch]
            log.append(f"{read_ns + 20 + chance.randrange(9)} stop 2 | {start + 380 + worker} end")
    return draw(*(" | ".join(log) for log in logs))


def portions(trace: SmallTrace, rounds: Collection[int]) -> list[SmallTrace]:
    """Return what of a log is there after some numbers of rounds, and then all of it."""
    return [*(replace(trace.until_epoch(number - 1), complete=False) for number in rounds), trace]


LIMITS = "invariants:learn=false:message-max-ns=150:some-progress=false"
SLOW = Rule(
    name="slow", query=LIMITS, where="row.type = 'data_message' and row.observed > ns(150)", subject=("to_worker",)
)
"""A rule that data for worker 0 violates in skewed rounds, and nothing else."""
