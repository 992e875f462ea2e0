"""Collectives that processors carry out (gloo, MPI, UCC): a thread of a rank runs each, and who asked for it waits."""

from __future__ import annotations

import re
from collections import defaultdict, deque
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from pag_graph.model.enums import ActivityType
from pag_graph.sources.kineto.rank_log import ANNOTATION, OP, PYTHON
from pag_graph.sources.kineto.spans import LAUNCH, SYNCHRONISATION
from pag_graph.sources.kineto.streams import GAP_NS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from pag_graph.sources.kineto.rank import Rank
    from pag_graph.sources.kineto.rank_log import RankLog
    from pag_graph.sources.kineto.spans import Spans
    from pag_graph.sources.kineto.threads import Intervals

    I64 = NDArray[np.int64]

__all__ = ["ON_HOST", "group_of", "host_rows", "write_host_collectives"]

ON_HOST: Final = re.compile(r"^(?:gloo|mpi|ucc):(\w+)")
"""What PyTorch calls a collective that a thread carries out."""
_ASKED: Final = re.compile(r"^c10d::(\w+)")
"""What it calls asking for one."""


class _Asked(NamedTuple):
    """A call that asked for a collective."""

    thread: int
    begin: int
    end: int


def host_rows(log: RankLog) -> list[tuple[int, str]]:
    """Return the collectives that threads of a rank carried out, by begin: row in the log, and name."""
    matches = {number: match[1] for number, name in enumerate(log.names) if (match := ON_HOST.match(name))}
    rows = log.rows_of(ANNOTATION, OP)
    rows = rows[np.isin(log.name[rows], list(matches))]
    rows = rows[np.argsort(log.t[rows], kind="stable")]
    return [(row, matches[int(log.name[row])]) for row in rows.tolist()]


def group_of(log: RankLog) -> tuple[int, ...]:
    """Return the ranks of the one group that there is; empty if there are several, or the trace does not say.

    Events of these collectives name no group.
    """
    groups = {tuple(sorted(ranks)) for ranks in log.groups.values()}
    if not groups and log.world_size > 1:
        return tuple(range(log.world_size))
    return next(iter(groups)) if len(groups) == 1 else ()


def write_host_collectives(rank: Rank, spans: Spans, inside: Intervals) -> None:
    """Write what the threads that carry out collectives waited for, and how who asked for them waited.

    Parameters
    ----------
    rank
        With its threads.
    spans
        Where to write it.
    inside
        What the threads did.

    Notes
    -----
    Calls and collectives of one name are taken to have the same order. A thread that rests while a collective that it
    asked for ends waited for it: inferred.
    """
    log = rank.log
    asked, rests = _asked_for(log), _Rests(rank, inside)
    free: dict[int, int] = {}
    waited: dict[tuple[int, int], tuple[int, int]] = {}
    for row, name in host_rows(log):
        thread, begin, end = int(log.thread[row]), int(log.t[row]), int(log.end[row])
        worker = rank.thread_workers[thread]
        calls = asked[_plain(name)]
        if calls and calls[0].begin <= begin:
            call = calls.popleft()
            _write_before(rank, spans, call, worker, (free.get(thread, rank.origin), begin))
            rest_begin = rests.since(call, end)
            if rest_begin is not None:
                # Of several that end in one rest the last one ended it.
                key = (call.thread, rest_begin)
                waited[key] = max(waited.get(key, (end, worker)), (end, worker))
        free[thread] = max(end, free.get(thread, end))
    for (thread, rest_begin), (end, worker) in waited.items():
        waiting = rank.thread_workers[thread]
        spans.span(waiting, rest_begin, end, ActivityType.WAITING, inferred=True)
        spans.message(SYNCHRONISATION, worker, end, waiting, end)


def _plain(name: str) -> str:
    """Return a name as calls and collectives have it alike: `allreduce_` asks for `all_reduce`."""
    return name.replace("_", "").lower()


def _asked_for(log: RankLog) -> Mapping[str, deque[_Asked]]:
    matches = {number: _plain(match[1]) for number, name in enumerate(log.names) if (match := _ASKED.match(name))}
    rows = log.rows_of(OP)
    rows = rows[np.isin(log.name[rows], list(matches))]
    asked: dict[str, deque[_Asked]] = defaultdict(deque)
    for row in rows[np.argsort(log.t[rows], kind="stable")].tolist():
        call = _Asked(int(log.thread[row]), int(log.t[row]), int(log.end[row]))
        asked[matches[int(log.name[row])]].append(call)
    return asked


def _write_before(rank: Rank, spans: Spans, call: _Asked, worker: int, gap: tuple[int, int]) -> None:
    """Write what a thread did before a collective: it waited until it was asked for, or was busy before."""
    free, begin = gap
    asker = rank.thread_workers[call.thread]
    sent = min(call.end, begin)
    if asker == worker:
        return
    spans.message(LAUNCH, asker, sent, worker, begin, arrived=max(sent, min(free, begin)))
    if sent > free:
        spans.span(worker, free, begin, ActivityType.WAITING, inferred=True)
    elif begin - free <= GAP_NS:
        spans.span(worker, free, begin, ActivityType.SCHEDULING, inferred=True)


class _Rests:
    """When threads that asked for collectives were not at work."""

    def __init__(self, rank: Rank, inside: Intervals) -> None:
        self._rank, self._inside = rank, inside
        self._known: dict[int, tuple[I64, I64]] = {}

    def since(self, call: _Asked, end: int) -> int | None:
        """Return since when a thread rested that had asked for a collective, when that ended; None if it was at work.

        Notes
        -----
        A search in what the thread did, which is looked for once.
        """
        of_thread, bounds = self._of(self._rank.thread_workers[call.thread])
        place = int(np.searchsorted(bounds, end, side="left"))
        if not 0 < place < len(bounds):
            return None
        low, high = int(bounds[place - 1]), int(bounds[place])
        if high - low <= GAP_NS or low < call.begin:
            return None
        inside = self._inside
        last_begun = int(np.searchsorted(inside.begin[of_thread], low, side="right")) - 1
        outer = int(of_thread[last_begun])
        while outer >= 0 and inside.end[outer] <= low:
            outer = int(inside.parent[outer])
        resting = outer < 0 or self._rank.log.kind[inside.row[outer]] in (PYTHON, ANNOTATION)
        return low if resting else None

    def _of(self, worker: int) -> tuple[I64, I64]:
        """Return what a thread did, by index, and when it began or ended something, ascending."""
        if worker not in self._known:
            places = np.flatnonzero(self._inside.worker == worker)
            bounds = np.sort(np.concatenate([self._inside.begin[places], self._inside.end[places]]))
            self._known[worker] = places, bounds
        return self._known[worker]
