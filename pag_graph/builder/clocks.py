"""One clock for all workers, estimated from the messages themselves: no message is read before it was sent.

Every message from clock a to clock b bounds how far the two may differ: ``t_b + o_b >= t_a + o_a``. These are
difference constraints; what satisfies them all is an interval per clock. Its middle is the estimate and half its width
the uncertainty, as in Duda, Harrus, Haddad, Bernard: "Estimating global time in distributed systems" (ICDCS 1987),
there for two clocks, here for all of them at once. Only where no constant offsets satisfy all messages do the clocks
get a drift as well, and where not even that does, the trace contradicts itself and keeps its negative messages.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from pag_graph.builder.match import follow
from pag_graph.builder.reading import KINDS, read_columns
from pag_graph.errors import MissingExtraError
from pag_graph.kernels.clocks import ends_between_clocks, lower_hull
from pag_graph.model.ids import POSITION_BITS
from pag_graph.rules.rows import MessageRows
from pag_graph.runtime.threads import each

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from pag_graph.store.log import TraceLog

    F64 = NDArray[np.float64]
    I64 = NDArray[np.int64]

MAX_DRIFT = 5e-4
"""Largest drift that is believed; quartz clocks stay below a fifth of it."""

_COLUMNS = ("t_ns", "kind", "channel", "peer", "message_seq")


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """How one worker's clock becomes the common one."""

    offset_ns: int
    drift: float = 0.0
    """Nanoseconds added per nanosecond of the worker's own clock."""

    def common(self, t: Any) -> Any:
        """Return times on the common clock: of one reading, or of an array of them; never changes their order."""
        if not self.drift:
            return t + self.offset_ns
        shift = np.rint(np.asarray(t, np.float64) * self.drift).astype(np.int64)
        return t + self.offset_ns + (shift if isinstance(t, np.ndarray) else int(shift))

    def own(self, t: int) -> int:
        """Convert a time of the common clock to the worker's own clock, in ns; rounded."""
        return round((t - self.offset_ns) / (1 + self.drift))

    def shifted(self, by_ns: int) -> Clock:
        """Return the clock with another zero."""
        return Clock(offset_ns=self.offset_ns + by_ns, drift=self.drift)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockEstimate:
    """Clocks of all workers, with how sure they are."""

    clocks: Mapping[int, Clock]
    """Per worker."""
    uncertainty_ns: Mapping[int, int | None]
    """Per worker: how far off the estimate may be from the first worker's clock; null where messages do not bound it
    from both sides."""
    margin_ns: int | None
    """The least time that any message takes on the common clock; negative if no clocks satisfy all messages."""
    messages: int
    """Messages between two clocks that were looked at."""


def messages_between_clocks(log: TraceLog, group: Mapping[int, int]) -> pl.DataFrame:
    """Match all messages whose ends lie on different clocks.

    Parameters
    ----------
    log
        The trace's events.
    group
        Per worker: number of the clock that it reads.

    Returns
    -------
    pl.DataFrame
        One row per message, columns `sender, receiver` (workers), `sent, read` (each on its worker's own clock).

    Notes
    -----
    O(messages) in time; memory for the messages between clocks only, about 150 bytes each, of which 32 stay.
    """
    of_worker = np.full(max(group, default=0) + 1, -1, np.int64)
    of_worker[list(group)] = list(group.values())

    def ends(worker: int) -> MessageRows:
        parts: dict[str, list[Any]] = {name: [] for name in _COLUMNS}
        for chunk in log.chunks.get(worker, ()):
            rows = read_columns(log, worker, chunk.first_row, chunk.first_row + chunk.rows, _COLUMNS, KINDS)
            end_rows = ends_between_clocks(rows["kind"], rows["peer"], of_worker, group[worker])
            for name, part in parts.items():
                part.append(rows[name][end_rows])
        no_values = {name: np.empty(0, np.int8 if name == "kind" else np.int64) for name in _COLUMNS}
        columns = {name: np.concatenate([no_values[name], *part]) for name, part in parts.items()}
        t = columns.pop("t_ns")
        return MessageRows(worker=worker, first_order=1, epoch=t, t=t, **columns)

    log = log.forward()
    worker_messages = each(ends, list(group))
    # Of several sends with one key the first counts, as it does when the graph is built.
    follow(worker_messages)
    has_send = [messages.send_id >= 0 for messages in worker_messages]
    columns = {
        "sender": [
            messages.send_id[reads_found] >> POSITION_BITS
            for messages, reads_found in zip(worker_messages, has_send, strict=True)
        ],
        "receiver": [
            np.full(np.count_nonzero(reads_found), messages.worker)
            for messages, reads_found in zip(worker_messages, has_send, strict=True)
        ],
        "sent": [messages.sent[reads_found] for messages, reads_found in zip(worker_messages, has_send, strict=True)],
        "read": [
            messages.t[messages.reads[reads_found]]
            for messages, reads_found in zip(worker_messages, has_send, strict=True)
        ],
    }
    no_values = np.empty(0, np.int64)
    return pl.DataFrame({name: np.concatenate([no_values, *parts]) for name, parts in columns.items()})


def estimate_clocks(
    messages: pl.DataFrame, recorded: Mapping[int, int], group: Mapping[int, int] | None = None
) -> ClockEstimate:
    """Estimate the clocks that let no message be read before it was sent.

    Parameters
    ----------
    messages
        As `messages_between_clocks` returns them.
    recorded
        Per worker: offset as recorded. Workers of one clock keep their differences; the clock of the lowest worker
        keeps its own offset and is what the others are aligned to.
    group
        Per worker: number of its clock; each its own where absent.

    Returns
    -------
    ClockEstimate
        A clock that messages bound from one side only moves as little as they ask for; one that they do not bound
        keeps its offset.

    Notes
    -----
    Constant offsets: O(messages + clocks^3), exact. Drift: a linear program over the lower hulls of the messages of
    each pair of clocks, in the time of sending and reading (a message above the hull is implied by those on it).
    """
    workers = sorted(recorded)
    group = group or {worker: worker for worker in workers}
    numbers = {clock: number for number, clock in enumerate(dict.fromkeys(group[worker] for worker in workers))}
    index = {worker: numbers[group[worker]] for worker in workers}
    shift = np.zeros(max(workers, default=0) + 1, np.int64)
    clock_of = np.zeros(len(shift), np.int64)
    for worker in workers:
        shift[worker], clock_of[worker] = recorded[worker], index[worker]
    sender, receiver = (messages[name].to_numpy() for name in ("sender", "receiver"))
    sent, read = messages["sent"].to_numpy() + shift[sender], messages["read"].to_numpy() + shift[receiver]
    a, b = clock_of[sender], clock_of[receiver]
    distances = _distances(a, b, read - sent, len(numbers))
    low, high = -distances[:, 0], distances[0, :]
    offset, exact = _middle(distances, a, b, read - sent)
    drift = np.zeros(len(numbers))
    if not exact:
        fitted = _with_drift(a, b, sent, read, len(numbers))
        if fitted is not None:
            offset, drift, low, high = fitted
    clocks, uncertainty = {}, {}
    for worker in workers:
        clock_number = index[worker]
        # The drift was fitted on recorded time: o + (1 + r)(t + s) = t + (s + o + r s) + r t.
        total = recorded[worker] + int(offset[clock_number]) + round(float(drift[clock_number]) * recorded[worker])
        clocks[worker] = Clock(offset_ns=total, drift=float(drift[clock_number]))
        width = high[clock_number] - low[clock_number]
        uncertainty[worker] = int(-(-width // 2)) if np.isfinite(width) and width >= 0 else None
    margin = None
    if len(sent):
        common_sent, common_read = (np.empty(len(sent), np.int64) for _ in range(2))
        for worker in workers:
            of_worker = sender == worker
            common_sent[of_worker] = clocks[worker].common(messages["sent"].to_numpy()[of_worker])
            of_worker = receiver == worker
            common_read[of_worker] = clocks[worker].common(messages["read"].to_numpy()[of_worker])
        margin = int((common_read - common_sent).min())
    return ClockEstimate(clocks=clocks, uncertainty_ns=uncertainty, margin_ns=margin, messages=messages.height)


def _distances(a: I64, b: I64, delay: I64, clocks: int) -> F64:
    """Return, per pair of clocks, the upper bound (ns) of the second's offset minus the first's, over all paths."""
    bounds = np.full((clocks, clocks), np.inf)
    np.fill_diagonal(bounds, 0)
    # A message a -> b with delay d says o_a - o_b <= d.
    np.minimum.at(bounds, (b, a), delay.astype(np.float64))
    for middle in range(clocks):
        np.minimum(bounds, bounds[:, middle, None] + bounds[None, middle, :], out=bounds)
    return bounds


def _middle(bounds: F64, a: I64, b: I64, delay: I64) -> tuple[I64, bool]:
    """Choose offsets clock by clock: the middle of what is allowed, given those already chosen.

    Returns the offsets and whether they satisfy every message.
    """
    bounds = bounds.copy()
    clocks = len(bounds)
    offset = np.zeros(clocks, np.int64)
    for clock in range(1, clocks):
        lower, upper = -bounds[clock, 0], bounds[0, clock]
        if np.isfinite(lower) and np.isfinite(upper):
            offset[clock] = int((lower + upper) // 2)
        else:
            # Bound from one side at most: the offset is as near to the recorded one as messages allow.
            offset[clock] = int(min(max(0.0, lower), upper))
        # The choice binds the other clocks: this clock is now at a fixed distance from the first, in both directions.
        chosen = float(offset[clock])
        for src, dst, distance in ((0, clock, chosen), (clock, 0, -chosen)):
            np.minimum(bounds, bounds[:, src, None] + distance + bounds[None, dst, :], out=bounds)
    return offset, bool((delay + offset[b] - offset[a] >= 0).all())


def _with_drift(a: I64, b: I64, sent: I64, read: I64, clocks: int) -> tuple[I64, F64, F64, F64] | None:
    """Fit offsets and drifts that leave every message as much time as possible; None if there are none.

    Raises
    ------
    MissingExtraError
        If scipy, which solves the linear program, is not installed.
    """
    # Needed only for clocks that run at different speeds, large, and slow to load.
    try:
        from scipy.optimize import linprog
    except ImportError as absent:
        message = "No constant offsets of the clocks agree with all messages; to fit their drift as well needs scipy."
        hint = "pip install 'pag-graph[clocks]', or build with the clocks as they were recorded: --clocks recorded"
        raise MissingExtraError(message, hint, {"extra": "clocks"}) from absent

    zero = int(min(sent.min(), read.min()))
    span = float(max(sent.max(), read.max()) - zero) or 1.0
    rows: list[list[float]] = []
    limits: list[float] = []
    pair = a * clocks + b
    order = np.lexsort((read, sent, pair))
    for part in np.split(order, np.flatnonzero(np.diff(pair[order])) + 1):
        x, y = (sent[part] - zero).astype(np.float64), (read[part] - zero).astype(np.float64)
        for corner in lower_hull(x, y):
            # Unknowns per clock but the first: offset in units of the span, drift; last the margin, all times in spans.
            row = [0.0] * (2 * clocks + 1)
            for clock, t, sign in ((int(a[part[0]]), x[corner] / span, 1.0), (int(b[part[0]]), y[corner] / span, -1.0)):
                row[2 * clock], row[2 * clock + 1] = sign, sign * t
            row[-1] = 1.0
            rows.append(row)
            limits.append((y[corner] - x[corner]) / span)
    matrix, limit = np.array(rows), np.array(limits)
    fixed = [(0.0, 0.0), (0.0, 0.0)]
    free = [(None, None), (-MAX_DRIFT, MAX_DRIFT)]
    box = [*fixed, *(free * (clocks - 1))]
    aim = np.zeros(2 * clocks + 1)
    aim[-1] = -1
    # Where nothing binds the margin from above (messages in one direction only) a second is plenty.
    best = linprog(aim, A_ub=matrix, b_ub=limit, bounds=[*box, (None, max(1.0, 1e9 / span))], method="highs")
    if not best.success or best.x[-1] < 0:
        return None
    offsets, drifts = best.x[0:-1:2] * span, best.x[1:-1:2]
    low, high = np.zeros(clocks), np.zeros(clocks)
    for clock in range(1, clocks):
        middle = np.zeros(2 * clocks + 1)
        middle[2 * clock], middle[2 * clock + 1] = 1, 0.5
        for sign, bounds_of_clocks, unbounded in ((1, low, -np.inf), (-1, high, np.inf)):
            optimum = linprog(sign * middle, A_ub=matrix, b_ub=limit, bounds=[*box, (0.0, 0.0)], method="highs")
            bounds_of_clocks[clock] = float(middle @ optimum.x) * span if optimum.success else unbounded
    # Drift counts from the first event; from the clock's own zero the offset is another.
    at_zero = np.rint(offsets - drifts * zero).astype(np.int64)
    return at_zero, drifts, low, high
