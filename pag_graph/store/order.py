"""The order of a log: numbers, clocks and epochs of a worker's events must not contradict where they stand."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from pag_graph.errors import TraceFormatError
from pag_graph.model.ids import MAX_WORKER
from pag_graph.model.tables import TRACE_EVENTS
from pag_graph.model.units import FARTHEST_NS
from pag_graph.store.trace_columns import MOST_COUNT

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pag_graph.store.trace import Trace

ORDER_COLUMNS = ("worker", "seq", "epoch", "t_ns")
"""Columns of events that say where an event stands in its log."""
ORDER_LIMITS = {
    "worker": (0, MAX_WORKER),
    "seq": (0, FARTHEST_NS),
    "epoch": (0, MOST_COUNT),
    "t_ns": (1 - FARTHEST_NS, FARTHEST_NS - 1),
}
"""The least and the greatest value of each of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """The first event of a log that contradicts the events before it."""

    rule: str
    """``value``, ``duplicate_seq``, ``seq_order``, ``clock`` or ``epoch``."""
    worker: int
    """Worker whose log it is."""
    seq: int
    """The event."""
    previous_seq: int | None
    """The event that it contradicts; null for a value that is out of range by itself."""
    observed: int
    """The value found in the event."""
    limit: int
    """The bound that it breaks."""

    @property
    def message(self) -> str:
        """What is wrong, without the file."""
        event = f"worker {self.worker}: event seq {self.seq}"
        match self.rule:
            case "duplicate_seq":
                return f"{event} occurs more than once"
            case "seq_order":
                return f"{event} follows event seq {self.previous_seq}, though numbers must increase"
            case "clock":
                back = self.limit - self.observed
                return f"{event} happened {back} ns before event seq {self.previous_seq}, which precedes it in the log"
            case "epoch":
                return (
                    f"{event} is of epoch {self.observed}, but event seq {self.previous_seq} before it is of"
                    f" epoch {self.limit}"
                )
            case _:
                return f"{event} has a worker, seq, epoch or time out of range: {self.observed} (limit {self.limit})"


def find_violation(events: pa.Table, *, prepared: bool = False, previous: pa.Table | None = None) -> Violation | None:
    """Find the first event, in order of worker and position, that contradicts its predecessors.

    Parameters
    ----------
    events
        Rows as `Trace.events` returns them, at least `worker`, `seq`, `epoch` and `t_ns`: all of a
        log, or any contiguous slice of it.
    prepared
        Whether `seq` need only be unique (in the slice), not increasing.
    previous
        For a slice: the last event of each worker before it, one row per worker.

    Returns
    -------
    Violation or None
        At equal position a repeated number comes before a falling one, then clock, then epoch.

    Notes
    -----
    Linear; a prepared log is sorted by number once, which is nearly linear where few rows moved.
    """
    if previous is not None and previous.num_rows:
        # The last events before the slice take part as its first rows; they are in order by themselves.
        heads = previous.select(ORDER_COLUMNS).cast(_order_schema())
        events = pa.concat_tables([heads, events.select(ORDER_COLUMNS).cast(_order_schema())])
        events = events.take(pa.array(np.argsort(events["worker"].to_numpy(), kind="stable")))
    if not events.num_rows:
        return None
    worker, seq, epoch, t_ns = (events[name].to_numpy() for name in ORDER_COLUMNS)
    same_worker = worker[1:] == worker[:-1]
    suspects: list[tuple[int, int, Violation]] = []

    def suspect(rank: int, row: int, rule: str, before: int | None, observed: int, limit: int) -> None:
        violation = Violation(
            rule=rule,
            worker=int(worker[row]),
            seq=int(seq[row]),
            previous_seq=None if before is None else int(seq[before]),
            observed=observed,
            limit=limit,
        )
        suspects.append((row, rank, violation))

    for values, (least, limit) in zip((worker, seq, epoch, t_ns), ORDER_LIMITS.values(), strict=True):
        if (row := _first((values < least) | (values > limit))) is not None:
            suspect(0, row, "value", None, int(values[row]), least if values[row] < least else limit)
    if prepared:
        if (row := _first_repeat(worker, seq)) is not None:
            suspect(1, row, "duplicate_seq", row, int(seq[row]), int(seq[row]))
    elif (row := _first(same_worker & (seq[1:] <= seq[:-1]), 1)) is not None:
        is_repeated = bool((seq[:row][worker[:row] == worker[row]] == seq[row]).any())
        suspect(1, row, "duplicate_seq" if is_repeated else "seq_order", row - 1, int(seq[row]), int(seq[row - 1]))
    for rank, (rule, values) in enumerate((("clock", t_ns), ("epoch", epoch)), start=2):
        if (row := _first(same_worker & (values[1:] < values[:-1]), 1)) is not None:
            suspect(rank, row, rule, row - 1, int(values[row]), int(values[row - 1]))
    return min(suspects, key=lambda violation: violation[:2])[2] if suspects else None


def check_events(trace: Trace, events: pa.Table, *, previous: pa.Table | None = None) -> None:
    """Refuse events whose numbers, clocks or epochs contradict the order of the log.

    Parameters
    ----------
    trace
        Trace that the events were read from: says whether it is prepared, and names files.
    events
        Rows as `Trace.events` returns them, at least `worker`, `seq`, `epoch` and `t_ns`: all of a
        log, or any contiguous slice of it.
    previous
        For a slice: the last event of each worker before it, one row per worker. Without it, what
        happens between two slices goes unchecked.

    Raises
    ------
    TraceFormatError
        Names file, worker and both events of the first violation in order of worker and position.
    """
    violation = find_violation(events, prepared=trace.meta.prepared, previous=previous)
    if violation is None:
        return
    path_text = trace.file_of(worker=violation.worker, seq=violation.seq)
    message = f"{path_text}: {violation.message}."
    raise TraceFormatError(
        message,
        "The log contradicts itself, so its graph would be wrong. Record the run again, or repair the log.",
        {"file": path_text, **asdict(violation)},
    )


def check_trace(trace: Trace) -> None:
    """Check all events of a trace with `check_events`, one worker after the other.

    Parameters
    ----------
    trace
        An opened trace. Takes the memory of its largest log.

    Raises
    ------
    TraceFormatError
        Names file, worker and both events of the first violation in order of worker and position.
    """
    for worker in sorted(trace.workers["worker"].to_pylist()):
        check_events(trace, trace.events(ORDER_COLUMNS, workers=[worker]))


def _order_schema() -> pa.Schema:
    return pa.schema([TRACE_EVENTS.field(name) for name in ORDER_COLUMNS])


def _first(mask: NDArray[np.bool_], shift: int = 0) -> int | None:
    """Return the index of the first true element plus `shift`."""
    if not mask.size:
        return None
    index = int(mask.argmax())
    return index + shift if mask[index] else None


def _first_repeat(worker: NDArray[Any], seq: NDArray[Any]) -> int | None:
    """Return the first row whose worker and number occurred before; rows of a worker stand together."""
    order = np.lexsort((seq, worker))
    repeated = (worker[order][1:] == worker[order][:-1]) & (seq[order][1:] == seq[order][:-1])
    return int(order[1:][repeated].min()) if repeated.any() else None
