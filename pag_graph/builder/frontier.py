"""Which rows are decided, so that no more of the log can change them, and which epochs are closed (`docs/model.md`).

Slices end where activities and idle intervals are certain, as far as a worker's own log tells. The rest is here: every
read has its send, or nobody will log it in time; who begins was born, or never will be; an epoch is closed when every
worker has a vertex behind its end, and answered when what was sent in it was read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pag_graph.builder.epochs import Closed, EpochRows
from pag_graph.kernels.activations import EPOCH_END
from pag_graph.rules.protocol import Logged
from pag_graph.rules.registry import wait_rules

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import polars as pl

    from pag_graph.builder.epochs import Windows
    from pag_graph.builder.plan import RunPlan, Slice
    from pag_graph.builder.scan import SliceRows
    from pag_graph.builder.state import RunState, SliceScan

_EVER = np.iinfo(np.int64).max
SETTLE_NS = 1_000_000_000
"""Time of the trace after which an epoch is answered although messages of it are still unread."""


class Fronts:
    """How far the log of each worker was scanned.

    Parameters
    ----------
    plan, state
        The build, and where it begins.
    """

    def __init__(self, plan: RunPlan, state: RunState) -> None:
        self._plan = plan
        # Workers without a log send nothing more; the last element is for messages that name no sender.
        self._t = np.full(max(plan.workers) + 2, _EVER, np.int64)
        for worker in plan.workers:
            worker_state = state.worker(worker)
            t = worker_state.last_row.t if worker_state.last_row else np.iinfo(np.int64).min
            self._set_time(worker, worker_state.rows, t, ended=worker_state.exit_ns is not None)

    def _set_time(self, worker: int, rows: int, t: int, *, ended: bool) -> None:
        is_whole_log = rows == self._plan.log.rows_of(worker)
        self._t[worker] = _EVER if is_whole_log and (ended or not self._plan.tail) else t

    def scanned(self, scan: SliceScan) -> None:
        """Go on behind a slice.

        Parameters
        ----------
        scan
            The slice after those that were scanned.
        """
        for worker, worker_scan in scan.workers.items():
            t = worker_scan.last_row.t if worker_scan.last_row else int(self._t[worker])
            has_ended = worker_scan.exit_ns is not None or (worker_scan.last_row is None and self._t[worker] == _EVER)
            self._set_time(worker, worker_scan.rows[1], t, ended=has_ended)

    def reached(self) -> int:
        """Return the last instant that all logs have reached.

        Returns
        -------
        int
            Nanoseconds since the run's origin; workers whose log has ended do not count.
        """
        return int(self._t[list(self._plan.workers)].min())

    def logged(self, worker: int, unread: Mapping[int, int]) -> Logged:
        """Say how far the logs go, from where a worker stands.

        Parameters
        ----------
        worker
            The worker.
        unread
            As of `SendBook.unread_since`.

        Returns
        -------
        Logged
            What the rules ask for, to tell whether a wait is certain.
        """
        t = {peer: int(self._t[peer]) for peer in self._plan.workers}
        first_other = min((t[peer] for peer in t if peer != worker), default=_EVER)
        return Logged(min(first_other, t[worker]), first_other, unread.get(worker, _EVER))

    def decided(self, scan: SliceScan, lost: pl.DataFrame) -> bool:
        """Say whether no more of the log can change the rows of a slice.

        Parameters
        ----------
        scan
            The slice.
        lost
            Its reads without a send, columns `pag_graph.builder.match.RECEIVES`.

        Returns
        -------
        bool
            Whether each of these reads lacks its send for good, and the births of all workers that begin in the slice
            are known.
        """
        if lost.height:
            sender = lost["peer"].to_numpy()
            has_log = (sender >= 0) & (sender < len(self._t) - 1)
            passed = self._t[np.where(has_log, sender, -1)]
            horizon_ns = self._plan.parameters.horizon_ns
            # The sum of the two ends where integers do.
            latest = np.minimum(lost["t"].to_numpy(), _EVER - horizon_ns) + horizon_ns
            if ((passed <= latest) & (passed < _EVER)).any():
                return False
        begins = [
            (worker, worker_scan.first.t)
            for worker, worker_scan in scan.workers.items()
            if not worker_scan.rows[0] and worker_scan.first
        ]
        workers = np.array(self._plan.workers)
        return all((self._t[workers[workers != worker]] > t).all() for worker, t in begins)


def certain_rows(
    plan: RunPlan, fronts: Fronts, state: RunState, part: Slice, read: SliceRows, stitched: pl.DataFrame
) -> dict[int, tuple[int, int]]:
    """Return the rows at the beginning of the last slice of a log that goes on which no more of it can change.

    Parameters
    ----------
    plan
        The build.
    fronts, state
        How far all logs go, and where the build stands before the slice, but for its sends, which it has.
    part, read
        The slice, and its rows; what earlier slices sent is filled in.
    stitched
        Which rows read that, columns `pag_graph.builder.match.STITCHED`.

    Returns
    -------
    dict
        Per worker with such rows: the first, and the one after the last. Empty where no epoch comes nearer to its end
        by them: then they are worth no slice of their own.
    """
    rules, unread = wait_rules(plan.rules), state.sends.unread_since(plan.workers, stitched)
    rows = {}
    for worker_rows, survey in zip(read.rows, read.surveys, strict=True):
        worker, low = worker_rows.worker, part.rows[worker_rows.worker][0]
        count = rules.certain(worker_rows, survey, plan.setting, fronts.logged(worker, unread))
        if count:
            rows[worker] = (low, low + count)
    ends = {worker: high - low for worker, (low, high) in rows.items()}
    return rows if rows and _epochs_left(state, read, ends) > _epochs_left(state, read, {}) else {}


def may_close(state: RunState, read: SliceRows) -> bool:
    """Say whether an epoch comes nearer to its end if all rows of the last slice are decided.

    Parameters
    ----------
    state
        Where the build stands before the slice.
    read
        Its rows.

    Returns
    -------
    bool
        O(workers).
    """
    all_rows = {rows.worker: rows.rows for rows in read.rows}
    return _epochs_left(state, read, all_rows) > _epochs_left(state, read, {})


def _epochs_left(state: RunState, read: SliceRows, counts: Mapping[int, int]) -> int:
    """Return the first epoch that some worker has not left if so many of its rows in the last slice are decided."""
    first = []
    for rows in read.rows:
        worker_state, count = state.worker(rows.worker), counts.get(rows.worker, 0)
        if count < rows.rows:
            first.append(int(rows.epoch[count]))
        elif rows.rows:
            first.append(int(rows.epoch[-1]) + int(rows.kind[-1] == EPOCH_END))
        elif worker_state.exit_ns is None:
            first.append(
                worker_state.last_row.epoch + worker_state.last_row.ends_epoch if worker_state.last_row else -1
            )
    return min(first, default=-1)


def closed_for_good(plan: RunPlan, span: Windows, state: RunState, undecided: Sequence[SliceScan]) -> Closed:
    """Return the epochs that no more of the log can change.

    Parameters
    ----------
    plan
        The build.
    span
        The windows behind those that were closed before.
    state
        Where the decided rows end.
    undecided
        Slices behind them.

    Returns
    -------
    Closed
        An epoch is closed if all before it are, and every worker that has not ended has logged its end, has no
        undecided row of it, and has a decided vertex at or behind the end of its window.
    """
    closed = span.before
    if span.inferred:
        return closed
    rows = EpochRows.merged(scan.epochs for scan in undecided)
    # The first one of a worker is set last.
    next_epoch = dict(zip(rows.worker[::-1].tolist(), rows.epoch[::-1].tolist(), strict=True))
    latest_end_ns, first_open = plan.end_ns - 1, _EVER
    for worker in plan.workers:
        worker_state = state.worker(worker)
        if worker_state.last is None or worker_state.last_row is None:
            return closed
        if worker_state.exit_ns is None:
            follows = worker_state.last_row.epoch + worker_state.last_row.ends_epoch
            latest_end_ns = min(latest_end_ns, worker_state.last.t)
            first_open = min(first_open, next_epoch.get(worker, follows))
    ends_ns = span.bounds[1 : len(span.completed) + 1]
    count = min(
        int(np.searchsorted(ends_ns, latest_end_ns, side="right")), int(np.searchsorted(span.completed, first_open))
    )
    return Closed(closed.epochs + count, int(span.completed[count - 1]), int(ends_ns[count - 1])) if count else closed


class Answered(NamedTuple):
    """Epochs about which nothing is left to be learned, but for messages that are read very late."""

    last: int = -1
    """The last of them; all before it are answered, too."""
    pending: tuple[tuple[int, int], ...] = ()
    """Closed epochs that are not, and when their windows end."""


def answered(
    plan: RunPlan,
    span: Windows,
    closed: Closed,
    frontier: RunState,
    undecided: Sequence[SliceScan],
    before: Answered = Answered(),  # noqa: B008  (a value that nobody can change)
    settle_ns: int = SETTLE_NS,
) -> Answered:
    """Return the epochs that are answered: closed, and every message sent up to their end is read and decided.

    Parameters
    ----------
    plan
        The build.
    span
        The windows behind those that were closed before.
    closed
        The epochs that are closed now.
    frontier
        Where the decided rows end.
    undecided
        Slices behind them.
    before
        What was answered when the build began.
    settle_ns
        An epoch is answered as well when all logs that go on have passed its end by so much.

    Returns
    -------
    Answered
        O(epochs that are closed now or pending).
    """
    now = zip(span.completed.tolist(), span.bounds[1:].tolist(), strict=False)
    pending = [*before.pending, *((epoch, end_ns) for epoch, end_ns in now if epoch <= closed.last)]
    unread_ns = frontier.sends.first_unread_ns()
    passed_ns = min(_logged_until(worker, frontier, undecided) for worker in plan.workers)
    last = before.last
    for place, (epoch, end_ns) in enumerate(pending):
        if unread_ns is not None and unread_ns <= end_ns and passed_ns < end_ns + settle_ns:
            return Answered(last, tuple(pending[place:]))
        last = epoch
    return Answered(last)


def _logged_until(worker: int, frontier: RunState, undecided: Sequence[SliceScan]) -> int:
    """Return the time of a worker's last row; the end of time if it has ended."""
    state = frontier.worker(worker)
    t, ended = state.last_row.t if state.last_row else 0, state.exit_ns is not None
    for scan in undecided:
        worker_scan = scan.workers.get(worker)
        if worker_scan is not None and worker_scan.last_row is not None:
            t, ended = worker_scan.last_row.t, worker_scan.exit_ns is not None
    return _EVER if ended else t
