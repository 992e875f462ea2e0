"""What a run that goes on is doing now: whom its next epoch waits for, why, and what can only grow.

All of it is so far: nothing here is final, and nothing enters a table of the store.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pag_graph.builder.epochs import EpochRows
from pag_graph.kernels import NEVER
from pag_graph.model.ids import POSITION_BITS
from pag_graph.store.tail_log import TailLog

if TYPE_CHECKING:
    from pag_graph.builder.epochs import Closed
    from pag_graph.builder.fold import Folded
    from pag_graph.builder.plan import RunPlan


HOLDING = {
    "unborn": "it has logged nothing yet",
    "silent": "it has logged nothing since others ended the epoch: it may be inside a long activation",
    "not_ended": "it has not ended the epoch",
    "unmatched_read": "it read a message that nobody has logged to have sent",
    "open_activation": "an activation goes on in which the epoch ended",
    "missing_rows": "a file of its log lacks, though later ones are there",
    "undecided_wait": "what ended its last idle interval is not known before the next one begins",
}
"""Why a worker holds the frontier, in words (see `Holder`)."""


class Holder(NamedTuple):
    """Whom the frontier waits for."""

    worker: int
    """Whom."""
    why: str
    """``unborn``: it has logged nothing. ``silent``: it has logged nothing since the others ended the epoch.
    ``missing_rows``: a file of its log lacks, though later ones are there. ``not_ended``: it goes on, and has not ended
    the epoch. ``open_activation``: an activity goes on in which the epoch ended. ``unmatched_read``: it read what
    nobody has logged to have sent. ``undecided_wait``: what ended its last idle interval is not known yet."""
    since_ns: int
    """Since when, from the run's origin: its last event, its read, or the last instant up to which it is decided."""


class Standing(NamedTuple):
    """How far the log of a worker goes."""

    worker: int
    """Whose log."""
    logged_ns: int | None
    """Its last event, from the run's origin; None where it has none."""
    decided_ns: int | None
    """Its last event that no more of the log can change."""
    epoch: int | None
    """The epoch of its last event."""
    ended: bool
    """Whether it has logged its exit."""


class Ongoing(NamedTuple):
    """What a run is doing, as far as its log goes."""

    as_of_ns: int
    """The instant up to which all logs go, from the run's origin."""
    epoch: int | None
    """The first epoch that is not closed; None where none has begun."""
    holder: Holder | None
    """Whom it waits for; None where none has begun."""
    epoch_ns: int
    """How long it has been since the last closed epoch was complete: the next one takes at least so long."""
    unread: int
    """Messages that not all receivers have read."""
    oldest_unread_ns: int | None
    """When the oldest of them was sent, from the run's origin."""
    oldest_unread_by: int | None
    """Who sent it."""
    workers: tuple[Standing, ...]
    """All of them, ascending."""
    final: bool = False
    """Never."""


def ongoing(plan: RunPlan, folded: Folded, closed: Closed) -> Ongoing:
    """Say what a run is doing.

    Parameters
    ----------
    plan, folded
        Of the last step of a follower.
    closed
        Epochs that are closed.

    Returns
    -------
    Ongoing
        O(workers + epochs that are not closed + messages that nobody has read).
    """
    workers = tuple(_worker_standing(worker, folded) for worker in plan.workers)
    alive = [standing.logged_ns for standing in workers if not standing.ended]
    as_of = min((t or 0 for t in alive), default=plan.end_ns)
    parts = [*folded.frontier.epochs, *(scan.epochs for scan in folded.undecided_scans)]
    epochs = EpochRows.merged(parts).after(closed.last)
    epoch = int(epochs.epoch.min()) if len(epochs.epoch) else None
    unread, oldest = folded.summary.state.sends.count_unread()
    return Ongoing(
        as_of_ns=as_of,
        epoch=epoch,
        holder=None if epoch is None else _holder(plan, folded, epochs.where(epochs.epoch == epoch), workers, closed),
        epoch_ns=max(as_of - closed.end_ns, 0),
        unread=unread,
        oldest_unread_ns=None if oldest is None else oldest[0],
        oldest_unread_by=None if oldest is None else oldest[1] >> POSITION_BITS,
        workers=workers,
    )


def _worker_standing(worker: int, folded: Folded) -> Standing:
    worker_state = folded.frontier.worker(worker)
    last, ended = worker_state.last_row, worker_state.exit_ns is not None
    decided = last.t if last else None
    for scan in folded.undecided_scans:
        worker_scan = scan.workers.get(worker)
        if worker_scan is not None and worker_scan.last_row is not None:
            last, ended = worker_scan.last_row, worker_scan.exit_ns is not None
    return Standing(worker, last.t if last else None, decided, last.epoch if last else None, ended)


def _holder(
    plan: RunPlan, folded: Folded, epoch: EpochRows, workers: tuple[Standing, ...], closed: Closed
) -> Holder | None:
    """Say whom an epoch waits for, of which these are the rows that each worker logged."""
    awaited = plan.log.awaited if isinstance(plan.log, TailLog) else frozenset()
    for standing in workers:
        if standing.logged_ns is None:
            return Holder(standing.worker, "unborn", 0)
    ended = {w: t for w, t in zip(epoch.worker.tolist(), epoch.end_ns.tolist(), strict=True) if t != NEVER}
    lacking = [standing for standing in workers if not standing.ended and standing.worker not in ended]
    if lacking:
        slowest = min(lacking, key=lambda standing: (standing.logged_ns or 0, standing.worker))
        first = min(ended.values(), default=None)
        since_ns = slowest.logged_ns or 0
        if slowest.worker in awaited:
            return Holder(slowest.worker, "missing_rows", since_ns)
        return Holder(slowest.worker, "silent" if first is not None and since_ns < first else "not_ended", since_ns)
    if len(folded.undecided_scans) > 1 and (read := _unmatched(folded, plan.parameters.horizon_ns)) is not None:
        return read
    undecided = [standing for standing in workers if standing.decided_ns != standing.logged_ns]
    if not undecided:
        return None
    slowest = min(undecided, key=lambda standing: (standing.decided_ns or 0, standing.worker))
    last = folded.undecided_scans[-1].workers.get(slowest.worker)
    reason = "open_activation" if last is not None and last.depth > 0 else "undecided_wait"
    return Holder(slowest.worker, reason, max(slowest.decided_ns or 0, closed.end_ns))


def _unmatched(folded: Folded, horizon_ns: int) -> Holder | None:
    """Return the first read whose send nobody has logged."""
    reads = folded.undecided_scans[0].receives
    sends = folded.summary.state.sends
    if reads.is_empty():
        return None
    stitched_reads = sends.find(reads, horizon_ns)
    lost = reads.join(stitched_reads, on=["worker", "order"], how="anti").sort("t", "worker")
    return None if lost.is_empty() else Holder(lost["worker"][0], "unmatched_read", lost["t"][0])
