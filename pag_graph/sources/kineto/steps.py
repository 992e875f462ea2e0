"""When the steps of a training job were complete (`docs/torch.md`)."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pag_graph.sources.kineto.rank import STEP
from pag_graph.sources.kineto.rank_log import ANNOTATION, OP
from pag_graph.sources.kineto.spans import EpochEnd

if TYPE_CHECKING:
    import re
    from collections.abc import Sequence

    from pag_graph.sources.kineto.rank import Rank
    from pag_graph.sources.kineto.rank_log import RankLog

__all__ = ["Steps", "complete_steps", "find_steps"]


@dataclass(frozen=True, slots=True)
class Steps:
    """Ends of steps; times are nanoseconds."""

    first: int
    """The epoch before the first step."""
    ends: list[tuple[int, int, int]]
    """Epoch, when it was complete, and on which worker; by epoch."""
    workers: int
    finish: int

    def rows(self) -> list[EpochEnd]:
        """Return the ends of epochs as each worker sees them: who ends one, and the others an instant later."""
        return [
            EpochEnd(worker, t + (worker != closing and t < self.finish), epoch)
            for epoch, t, closing in self.ends
            for worker in range(self.workers)
        ]


def find_steps(rank: Rank, pattern: re.Pattern[str]) -> list[tuple[int, int, int]]:
    """Return the steps that annotations of the main thread mark.

    Parameters
    ----------
    rank
        With its log and main thread.
    pattern
        An annotation is a step if this is found in its name. Of those that lie inside each other the outer one is the
        step. One that begins in a step and ends after it is the next step: clocks round, and a step must not be lost,
        as those after it would be taken for other steps than on the other ranks.

    Returns
    -------
    list of (number, start, end)
        By start, numbered from 1; times are nanoseconds. Their ends ascend as well.
    """
    log = rank.log
    spans = [
        (int(log.t[row]), int(log.end[row]))
        for row in log.rows_of(ANNOTATION, OP).tolist()
        if int(log.thread[row]) == rank.main and pattern.search(log.names[log.name[row]])
    ]
    outer: list[tuple[int, int]] = []
    # Of those that begin together the longest lies around the others.
    for start, end in sorted(spans, key=lambda span: (span[0], -span[1])):
        if not outer or start >= outer[-1][1] or end > outer[-1][1]:
            outer.append((start, end))
    return [(number, start, end) for number, (start, end) in enumerate(outer, 1)]


def step_starts(log: RankLog, pattern: re.Pattern[str] | None) -> list[tuple[int, int]]:
    """Return number and start of each step of a log, by start, in nanoseconds.

    Parameters
    ----------
    log
        The log.
    pattern
        Steps are annotations whose names fit it, numbered 0; the profiler's own (``ProfilerStep#N``) if absent.
    """
    starts = []
    for row in log.rows_of(ANNOTATION, OP).tolist():
        name = log.names[log.name[row]]
        match = STEP.match(name)
        if match if pattern is None else pattern.search(name):
            starts.append((int(match[1]) if match else 0, int(log.t[row])))
    return sorted(starts, key=lambda step: step[1])


def complete_steps(ranks: Sequence[Rank], finish: int) -> Steps:
    """Say when each step was complete: its annotation ended, and all that was called in it, on all ranks.

    Parameters
    ----------
    ranks
        With their steps.
    finish
        When the run ends: the end of the one epoch where there are no steps.

    Returns
    -------
    Steps
        Without gaps: a step is not complete before the one before it.
    """
    workers = sum(rank.workers for rank in ranks)
    latest: dict[int, tuple[int, int]] = {}
    begins: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for rank in ranks:
        for step, start, end in rank.steps:
            main = rank.thread_workers[rank.main]
            called = [activity for calls in rank.of_stream.values() for activity in calls.between(start, end)]
            t, worker = max([(end, -main), *((activity.end, -activity.stream.worker) for activity in called)])
            latest[step] = max(latest.get(step, (t, worker)), (t, worker))
            begins[step].append((start, main))
    if not latest:
        # Who did something until the very end closes the one epoch.
        latest_end, negated_worker = max(
            (end, -worker) for rank in ranks for worker, end in _ends_of_workers(rank).items()
        )
        return Steps(0, [(0, max(finish, latest_end), -negated_worker)], workers, finish)
    ordered = sorted(latest)
    first_start, first_main = min(begins[ordered[0]])
    ends: list[tuple[int, int, int]] = [(ordered[0] - 1, first_start, first_main)]
    for step in ordered:
        t, negated = latest[step]
        _, before, closing = ends[-1]
        ends.append((step, t, -negated) if t >= before else (step, before, closing))
    return Steps(ordered[0] - 1, ends, workers, finish)


def _ends_of_workers(rank: Rank) -> dict[int, int]:
    ends: dict[int, int] = {}
    log = rank.log
    for thread, worker in rank.thread_workers.items():
        of_thread = log.end[log.thread == thread]
        ends[worker] = int(of_thread.max()) if len(of_thread) else rank.origin
    for stream in rank.streams.values():
        ends[stream.worker] = max((activity.end for activity in stream.activities), default=rank.origin)
    return ends
