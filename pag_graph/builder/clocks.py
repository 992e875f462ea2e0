"""One clock for all workers, estimated from the messages themselves: no message is read before it was sent.

Every message from clock a to clock b bounds how far the two may differ: ``t_b + o_b >= t_a + o_a``. These are
difference constraints; what satisfies them all is an interval per clock. Its middle is the estimate and half its width
the uncertainty, as in Duda, Harrus, Haddad, Bernard: "Estimating global time in distributed systems" (ICDCS 1987),
there for two clocks, here for all of them at once. Only where no constant offsets satisfy all messages do the clocks
get a drift as well, and where not even that does, the trace contradicts itself and keeps its negative messages.
"""

from __future__ import annotations

from bisect import bisect_left
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

_UNBOUND = 1 << 62
"""No bound: more than any two times of a trace differ by."""

_COLUMNS = ("t_ns", "kind", "channel", "peer", "message_seq")


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """How one worker's clock becomes the common one."""

    offset_ns: int
    """Nanoseconds added at the zero of the worker's own clock."""
    drift: float = 0.0
    """Nanoseconds added per nanosecond of the worker's own clock."""

    def common(self, t: Any) -> Any:
        """Return times on the common clock.

        Parameters
        ----------
        t
            One reading of the worker's own clock, or an array of them (ns).

        Returns
        -------
        int or array of int64
            As `t`, rounded to nanoseconds; the order of times does not change.
        """
        if not self.drift:
            return t + self.offset_ns
        shift = np.rint(np.asarray(t, np.float64) * self.drift).astype(np.int64)
        return t + self.offset_ns + (shift if isinstance(t, np.ndarray) else int(shift))

    def own(self, t: int) -> int:
        """Return the first reading of the worker's own clock that is not before a time of the common one.

        Parameters
        ----------
        t
            A time of the common clock (ns).

        Returns
        -------
        int
            Nanoseconds.
        """
        own = t - self.offset_ns
        # Times since 1970 are no exact floats; the part of them that a drift makes up is, but for a nanosecond.
        own -= round(own * (self.drift / (1 + self.drift)))
        while self.common(own) < t:
            own += 1
        while self.common(own - 1) >= t:
            own -= 1
        return own

    def shifted(self, by_ns: int) -> Clock:
        """Return the clock with another zero.

        Parameters
        ----------
        by_ns
            Added to all times of the common clock.

        Returns
        -------
        Clock
            A new one.
        """
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

    Clocks may count from instants that are decades apart. Here each counts from its first message, so that a float
    holds its times to the nanosecond.
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
    a, b = clock_of[sender], clock_of[receiver]
    sent, read = messages["sent"].to_numpy() + shift[sender], messages["read"].to_numpy() + shift[receiver]
    zero = _first_messages(a, b, sent, read, len(numbers))
    sent, read = sent - zero[a], read - zero[b]
    offset, drift, width = _fitted(a, b, sent, read, zero - zero[0])
    clocks, uncertainty = {}, {}
    for worker in workers:
        number = index[worker]
        # With z, the clock's first message, and r, its drift: z0 + o + (1 + r)(t + s - z).
        since, rate = recorded[worker] - int(zero[number]), float(drift[number])
        total = since + int(zero[0]) + int(offset[number]) + round(rate * since)
        clocks[worker] = Clock(offset_ns=total, drift=rate)
        uncertainty[worker] = int(-(-width[number] // 2)) if np.isfinite(width[number]) else None
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


def _first_messages(a: I64, b: I64, sent: I64, read: I64, clocks: int) -> I64:
    """Return, per clock, when its first message was sent or read; 0 where it has none."""
    first = np.full(clocks, _UNBOUND)
    np.minimum.at(first, a, sent)
    np.minimum.at(first, b, read)
    return np.where(first < _UNBOUND, first, 0)


def _fitted(a: I64, b: I64, sent: I64, read: I64, recorded: I64) -> tuple[I64, F64, F64]:
    """Fit the clocks to messages, by constant offsets if that can be.

    Returns their offsets, their drifts, and the width of the interval that messages leave each; infinite where they
    leave no interval.
    """
    clocks = len(recorded)
    bounds = _bounds(a, b, read - sent, clocks)
    if _contradict(bounds):
        fitted = _with_drift(a, b, sent, read, clocks)
        if fitted is not None:
            return fitted
        # The offsets by which messages are read as little before they were sent as can be.
        bounds = _bounds(a, b, read - sent + _least_early_ns(a, b, read - sent, clocks), clocks)
        width = np.where(np.arange(clocks) > 0, np.inf, 0)
    else:
        is_bound = (bounds[0] < _UNBOUND) & (bounds[:, 0] < _UNBOUND)
        width = np.where(is_bound, bounds[0] + bounds[:, 0], np.inf)
    return _middle(bounds, recorded), np.zeros(clocks), width


def _bounds(a: I64, b: I64, delay: I64, clocks: int) -> I64:
    """Return, per pair of clocks, the upper bound (ns) of the second's offset minus the first's, over all paths."""
    bounds = np.full((clocks, clocks), _UNBOUND)
    np.fill_diagonal(bounds, 0)
    # A message a -> b with delay d says o_a - o_b <= d.
    np.minimum.at(bounds, (b, a), delay)
    for middle in range(clocks):
        bounds = _tightened(bounds, bounds[:, middle], bounds[middle])
        if _contradict(bounds):
            break
    return bounds


def _tightened(bounds: I64, to: I64, onward: I64) -> I64:
    """Return bounds that also hold over one more way: to some place from every clock, and from there to every clock."""
    exists = (to < _UNBOUND)[:, None] & (onward < _UNBOUND)
    return np.where(exists, np.minimum(bounds, to[:, None] + onward), bounds)


def _contradict(bounds: I64) -> bool:
    """Say whether no offsets satisfy all bounds: a clock would have to be before itself."""
    return bool((np.diagonal(bounds) < 0).any())


def _least_early_ns(a: I64, b: I64, delay: I64, clocks: int) -> int:
    """Return how early messages have to be read, at least, by some clocks without a drift."""
    worst = -int(delay.min())
    return bisect_left(range(worst), x=True, key=lambda early: not _contradict(_bounds(a, b, delay + early, clocks)))


def _middle(bounds: I64, recorded: I64) -> I64:
    """Choose offsets clock by clock: the middle of what is allowed, given those already chosen.

    Where there is none, the offset is as near to the `recorded` one as messages allow.
    """
    offset = np.zeros(len(bounds), np.int64)
    for clock in range(1, len(bounds)):
        lower, upper = -int(bounds[clock, 0]), int(bounds[0, clock])
        if -lower < _UNBOUND and upper < _UNBOUND:
            offset[clock] = (lower + upper) // 2
        else:
            offset[clock] = min(max(int(recorded[clock]), lower), upper)
        # The choice binds the other clocks: this clock is now at a fixed distance from the first, in both directions.
        for src, dst, distance in ((0, clock, offset[clock]), (clock, 0, -offset[clock])):
            to = bounds[:, src]
            bounds = _tightened(bounds, np.where(to < _UNBOUND, to + distance, _UNBOUND), bounds[dst])
    return offset


def _with_drift(a: I64, b: I64, sent: I64, read: I64, clocks: int) -> tuple[I64, F64, F64] | None:
    """Fit offsets and drifts that leave every message as much time as possible; None if there are none.

    Each clock counts from its first message, and so does its drift. Also returns how wide the interval is in which each
    offset may lie half a span of time behind it; infinite where nothing bounds it.

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

    span = float(max(sent.max(), read.max())) or 1.0
    rows: list[list[float]] = []
    limits: list[float] = []
    pair = a * clocks + b
    order = np.lexsort((read, sent, pair))
    for part in np.split(order, np.flatnonzero(np.diff(pair[order])) + 1):
        x, y = sent[part].astype(np.float64), read[part].astype(np.float64)
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
    width = np.zeros(clocks)
    for clock in range(1, clocks):
        middle = np.zeros(2 * clocks + 1)
        middle[2 * clock], middle[2 * clock + 1] = 1, 0.5
        for sign in (1, -1):
            optimum = linprog(sign * middle, A_ub=matrix, b_ub=limit, bounds=[*box, (0.0, 0.0)], method="highs")
            width[clock] -= sign * float(middle @ optimum.x) * span if optimum.success else -np.inf
    return np.rint(offsets).astype(np.int64), drifts, np.maximum(width, 0)
