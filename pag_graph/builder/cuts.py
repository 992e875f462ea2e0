"""Where the logs of a run are cut in slices."""

from __future__ import annotations

from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from pag_graph.builder.reading import KINDS, read_columns
from pag_graph.kernels.activations import OTHER, PARK
from pag_graph.kernels.layout import runs
from pag_graph.rules.rows import EXIT
from pag_graph.runtime.threads import alone, each
from pag_graph.store.log import TraceLog, column

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from numpy.typing import NDArray

    from pag_graph.builder.clocks import Clock
    from pag_graph.rules.protocol import WaitRules, Wanted

    I8 = NDArray[np.int8]
    I64 = NDArray[np.int64]
    Ranges = dict[int, tuple[int, int]]

FEW = 20_000
"""Events that one thread is done with before another one has begun."""
_NONE = np.array([OTHER], np.int8)
"""What stands before the first row of a log and after its last one."""


def cut_by_time(
    rules: WaitRules[Any, Any],
    log: TraceLog,
    clocks: Mapping[int, Clock],
    slice_events: int,
    *,
    start: Mapping[int, int],
    parks: Collection[int],
    pauses: Callable[[TraceLog, int], I64] | None = None,
    tail: bool,
) -> list[Ranges]:
    """Cut all workers at about the same instants, each where its rules need to look at neither side.

    Parameters
    ----------
    rules
        `WaitRules.safe_cut` says where a worker may be cut.
    log, clocks
        What to cut, and per worker of the run its clock.
    slice_events
        About how many events a slice holds.
    start
        Per worker: its first row to cut.
    parks
        Workers that are known to park before that.
    pauses
        Where the log does not say when workers had nothing to do: per log and worker, its rows with which it had
        nothing to do for certain, ascending. They take the place of `WaitRules.safe_cut`.
    tail
        Whether the log goes on: then the last slice holds, of each worker, what comes after the last place where it may
        be cut before the instant up to which all logs go: what is read up to then was sent up to then.

    Returns
    -------
    list of dict
        Per slice and worker its first row, and the one after its last; the last slice names all workers.
    """
    instants = _instants(log, clocks, slice_events, start)
    silent = tail and not all(log.rows_of(worker) for worker in clocks)
    logged_until = _logged_by_all(log, clocks) if tail and not silent else 0

    def cuts(worker: int) -> list[int]:
        begin, end = start[worker], log.rows_of(worker)
        if not (instants or tail):
            return [begin, end]
        cut_rows: _CutRows
        if pauses is None:
            may_cut = rules.safe_cut(lambda: worker in parks or first_row(log, worker, begin, _is_park) < end)
            cut_rows = _SearchedRows(log, worker, begin, may_cut)
        else:
            cut_rows = _ListedRows(log, worker, begin, pauses(log, worker))
        rows = [cut_rows.first(max(_row_at(log, worker, clocks[worker].own(t)), begin)) for t in instants]
        if tail:
            # The run's origin is not known before every worker has logged something.
            bound = 0 if silent else _row_at(log, worker, clocks[worker].own(logged_until + 1))
            last = begin if silent else cut_rows.last(bound)
            rows = [*(min(row, last) for row in rows), last]
        return list(accumulate([begin, *rows, end], max))

    workers = list(clocks)
    with alone(when=sum(log.rows_of(worker) - start[worker] for worker in workers) < FEW):
        return _slices(dict(zip(workers, each(cuts, workers), strict=True)), tail=tail)


class _CutRows(Protocol):
    """Where a worker may be cut."""

    def first(self, row: int) -> int:
        """Return the first place from a row on, or the number of the worker's rows."""
        ...

    def last(self, bound: int) -> int:
        """Return the last place up to a row; its end, if the worker ended there; the first row if there is none."""
        ...


class _SearchedRows(NamedTuple):
    """Places that the rows around them tell."""

    log: TraceLog
    worker: int
    begin: int
    wanted: Wanted

    def first(self, row: int) -> int:
        return first_row(self.log, self.worker, row, self.wanted)

    def last(self, bound: int) -> int:
        return _last_row(self.log, self.worker, self.begin, bound, self.wanted)


class _ListedRows(NamedTuple):
    """Places that were looked for."""

    log: TraceLog
    worker: int
    begin: int
    places: I64

    def first(self, row: int) -> int:
        later = self.places[np.searchsorted(self.places, row) :]
        return int(later[0]) if len(later) else self.log.rows_of(self.worker)

    def last(self, bound: int) -> int:
        rows = self.log.rows_of(self.worker)
        if rows <= bound and not _goes_on(self.log, self.worker):
            return rows
        before = self.places[: np.searchsorted(self.places, bound, side="right")]
        return int(before[-1]) if len(before) else self.begin


def _slices(cuts: Mapping[int, list[int]], *, tail: bool) -> list[Ranges]:
    count = len(next(iter(cuts.values()))) - 1
    ranges_of_slices = ({w: (c[i], c[i + 1]) for w, c in cuts.items() if c[i] < c[i + 1]} for i in range(count - tail))
    slices = [ranges for ranges in ranges_of_slices if ranges]
    last = {} if tail or not slices else slices.pop()
    # The run ends for every worker, also where its log has ended before.
    return [*slices, {w: last.get(w, (c[-2] if tail else c[-1], c[-1])) for w, c in cuts.items()}]


def _even_slices(events: int, slice_events: int) -> tuple[int, int]:
    """Return how many slices so many events make, and how many events each has, about, if all have the same."""
    count = max(-(-events // slice_events), 1)
    return count, max(-(-events // count), 1)


def _instants(log: TraceLog, clocks: Mapping[int, Clock], slice_events: int, start: Mapping[int, int]) -> list[int]:
    count, slice_events = _even_slices(sum(log.rows_of(w) - start[w] for w in clocks), slice_events)
    if count <= 1:
        return []
    chunks = [(w, chunk) for w in clocks for chunk in log.chunks.get(w, ()) if chunk.first_row + chunk.rows > start[w]]
    largest = max(chunk.rows for _, chunk in chunks)
    if slice_events < largest:
        # Slices finer than row groups: only the times themselves tell where they lie.
        return instants_of_rows(log, clocks, start, np.arange(1, count) * slice_events)
    ends = sorted((clocks[w].common(chunk.t_max), chunk.rows) for w, chunk in chunks)
    reached = np.cumsum([rows for _, rows in ends])
    targets = np.minimum(np.arange(1, count) * slice_events, reached[-1])
    return [ends[i][0] for i in np.searchsorted(reached, targets)]


def instants_of_rows(log: TraceLog, clocks: Mapping[int, Clock], start: Mapping[int, int], places: I64) -> list[int]:
    """Return the times at some places among those of all rows.

    Parameters
    ----------
    log, clocks, start
        As for `cut_by_time`.
    places
        Ascending, from 0 on, in the order of time of all rows to cut.

    Returns
    -------
    list of int
        On the common clock. Reads chunk after chunk; in memory are those that overlap in time.
    """
    chunks = [(w, chunk) for w in clocks for chunk in log.chunks.get(w, ()) if chunk.first_row + chunk.rows > start[w]]
    chunks.sort(key=lambda item: int(clocks[item[0]].common(item[1].t_max)))
    begins = np.array([int(clocks[w].common(chunk.t_min)) for w, chunk in chunks])
    # What comes before all that is not read yet has its place.
    until = np.append(np.minimum.accumulate(begins[::-1])[::-1][1:], np.iinfo(np.int64).max)
    instants: list[int] = []
    waiting, passed = np.empty(0, np.int64), 0
    for (worker, chunk), bound in zip(chunks, until, strict=True):
        low = max(chunk.first_row, start[worker])
        times = log.read(worker, low, chunk.first_row + chunk.rows, ["t_ns"])
        ordered = np.sort(np.append(waiting, clocks[worker].common(column(times, "t_ns"))))
        count = int(np.searchsorted(ordered, bound, side="right"))
        here = places[(places >= passed) & (places < passed + count)]
        instants += ordered[here - passed].tolist()
        waiting, passed = ordered[count:], passed + count
    return instants


def _row_at(log: TraceLog, worker: int, clock: int) -> int:
    """Return the first row of a worker that is not earlier than `clock`, or the number of its rows."""
    for chunk in log.chunks.get(worker, ()):
        if chunk.t_max >= clock:
            rows = read_columns(log, worker, chunk.first_row, chunk.first_row + chunk.rows, ["t_ns"], {})
            return chunk.first_row + int(np.searchsorted(rows["t_ns"], clock))
    return log.rows_of(worker)


def _logged_by_all(log: TraceLog, clocks: Mapping[int, Clock]) -> int:
    """Return the instant up to which all workers have logged that have not ended."""
    ends = []
    for worker, clock in clocks.items():
        ends.append((_goes_on(log, worker), int(clock.common(log.chunks[worker][-1].t_max))))
    return min((end for goes_on, end in ends if goes_on), default=max(end for _, end in ends))


def _goes_on(log: TraceLog, worker: int) -> bool:
    """Say whether a worker that has logged something has not ended."""
    rows = log.rows_of(worker)
    return bool(read_columns(log, worker, rows - 1, rows, ["kind"], KINDS)["kind"][0] != EXIT)


def _is_park(_before: I8, kind: I8, _after: I8) -> NDArray[np.bool_]:
    return np.equal(kind, PARK)


def ever_parks(log: TraceLog, worker: int) -> bool:
    """Say whether a worker's log has a park, or the start of another idle stretch.

    Parameters
    ----------
    log
        The trace's events.
    worker
        Whose log.

    Returns
    -------
    bool
        Reads the column of kinds up to the first park.
    """
    return first_row(log, worker, 0, _is_park) < log.rows_of(worker)


def first_row(log: TraceLog, worker: int, start: int, is_wanted: Wanted) -> int:
    """Return the first row from some row on that is wanted.

    Parameters
    ----------
    log
        The trace's events.
    worker
        Whose log.
    start
        The row to begin with, from 0.
    is_wanted
        Asked with the kinds of the rows before, of the rows themselves, and of the rows after them, as arrays of one
        length; says which of them are wanted.

    Returns
    -------
    int
        The number of the worker's rows where none is. Reads the column of kinds, chunk by chunk, up to that row.
    """
    # Kinds that were read and not yet asked for, with the row before them; the first is of row `first`.
    kinds, first = (_NONE, -1) if start == 0 else (_NONE[:0], start - 1)
    for chunk in log.chunks.get(worker, ()):
        low, high = max(start - 1, 0, chunk.first_row), chunk.first_row + chunk.rows
        if low >= high:
            continue
        kinds = np.concatenate((kinds, read_columns(log, worker, low, high, ["kind"], KINDS)["kind"]))
        hits = np.flatnonzero(is_wanted(kinds[:-2], kinds[1:-1], kinds[2:]))
        if len(hits):
            return first + 1 + int(hits[0])
        first, kinds = first + max(len(kinds) - 2, 0), kinds[-2:]
    kinds = np.concatenate((kinds, _NONE))
    hits = np.flatnonzero(is_wanted(kinds[:-2], kinds[1:-1], kinds[2:]))
    return first + 1 + int(hits[0]) if len(hits) else log.rows_of(worker)


def _last_row(log: TraceLog, worker: int, start: int, bound: int, may_cut: Wanted) -> int:
    """Return the last row from `start` to `bound` where a log that goes on may be cut; its end, if the worker ended."""
    after = _NONE
    for chunk in reversed(log.chunks.get(worker, ())):
        low, high = max(start, chunk.first_row), chunk.first_row + chunk.rows
        if low >= high:
            break
        before = max(low - 1, 0)
        kinds = read_columns(log, worker, before, high, ["kind"], KINDS)["kind"]
        if high == log.rows_of(worker) <= bound and (kinds[-1] == EXIT or may_cut(kinds[-1:], _NONE, _NONE)[0]):
            return high
        kinds = np.concatenate((kinds if low else np.concatenate((_NONE, kinds)), after))
        # A row that nothing follows yet is not known to be wanted.
        hits = np.flatnonzero(may_cut(kinds[:-2], kinds[1:-1], kinds[2:]))
        hits = hits[hits <= bound - low]
        if len(hits):
            return low + int(hits[-1])
        after = kinds[1:2]
    return start


def cut_by_epoch(log: TraceLog, workers: Sequence[int], slice_events: int) -> list[Ranges]:
    """Cut between epochs, for rule sets to which every epoch is an island.

    Parameters
    ----------
    log, workers, slice_events
        As for `cut_by_time`.

    Returns
    -------
    list of dict
        As from `cut_by_time`, but that only workers with rows in it are named.
    """
    counts = dict(zip(workers, each(partial(_epoch_counts, log.forward()), workers), strict=True))
    epochs = np.unique(np.concatenate([values for values, _ in counts.values()]))
    sizes = np.zeros(len(epochs), np.int64)
    for values, rows in counts.values():
        np.add.at(sizes, np.searchsorted(epochs, values), rows)
    group = (np.cumsum(sizes) - sizes) // _even_slices(int(sizes.sum()), slice_events)[1]
    cuts = {}
    for w, (values, rows) in counts.items():
        counted = np.zeros(int(group[-1]) + 1, np.int64)
        np.add.at(counted, group[np.searchsorted(epochs, values)], rows)
        cuts[w] = [0, *(int(x) for x in np.cumsum(counted))]
    slices = ({w: (c[i], c[i + 1]) for w, c in cuts.items() if c[i] < c[i + 1]} for i in range(int(group[-1]) + 1))
    return [ranges for ranges in slices if ranges]


def _epoch_counts(log: TraceLog, worker: int) -> tuple[I64, I64]:
    """Return the epochs of a worker and how many rows each has; an epoch may come up several times."""
    epoch_runs = [
        runs(read_columns(log, worker, chunk.first_row, chunk.first_row + chunk.rows, ["epoch"], {})["epoch"])
        for chunk in log.chunks.get(worker, ())
    ]
    no_values = np.empty(0, np.int64)
    epochs, counts = ([run[column] for run in epoch_runs] for column in range(2))
    return np.concatenate([no_values, *epochs]), np.concatenate([no_values, *counts])
