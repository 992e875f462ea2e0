"""Rows of the canonical trace in the making: what workers did from when to when, and messages between them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import polars as pl

from pag_graph.kernels.nesting import depths, nest
from pag_graph.model.enums import ActivityType, EventKind
from pag_graph.model.tables import TRACE_EVENTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

    I64 = NDArray[np.int64]

__all__ = ["CHANNELS", "EpochEnd", "Spans", "event_tables"]

CHANNELS: Final = ("launch", "stream wait", "dependency", "synchronisation", "collective", "autograd", "flow")
"""Channels by number."""
LAUNCH, STREAM_WAIT, DEPENDENCY, SYNCHRONISATION, COLLECTIVE, AUTOGRAD, FLOW = range(len(CHANNELS))

_NOT_SAID: Final = -(1 << 62)
_PART_ROWS: Final = 1_000_000
# In one instant: messages are read, what runs in a wait ends, waits end, messages leave, everything else ends, then the
# epoch, and then something new begins; last, what happens inside of that at once.
_READ, _WAIT_ENDS, _SENT, _ENDS, _EPOCH, _BEGINS, _READ_INSIDE, _SENT_INSIDE = range(8)
_TYPES: Final = list(ActivityType)
_CODE: Final = {kind: code for code, kind in enumerate(_TYPES)}
_MESSAGE_COLUMNS: Final = ("channel", "sender", "sent", "receiver", "received", "arrived", "bytes", "inside", "after")
_SPAN_COLUMNS: Final = ("worker", "start", "end", "type", "operator", "inferred")


@dataclass(frozen=True, slots=True)
class EpochEnd:
    """When a worker saw an epoch end, in nanoseconds."""

    worker: int
    t: int
    epoch: int


@dataclass(slots=True)
class Spans:
    """Spans and messages, all times nanoseconds on one clock."""

    span_rows: list[tuple[int, int, int, int, int, int]] = field(default_factory=list)
    span_tables: list[I64] = field(default_factory=list)
    message_rows: list[tuple[int, ...]] = field(default_factory=list)
    cut: int = 0
    """Spans that another one of their worker cut across."""

    def span(
        self, worker: int, start: int, end: int, kind: ActivityType, operator: int = -1, *, inferred: bool = False
    ) -> None:
        """Add what a worker did from `start` to `end`, in nanoseconds; nothing if it took no time.

        Parameters
        ----------
        worker
            The worker.
        start, end
            On the clock that all share.
        kind
            What it did.
        operator
            For which operator; -1 for none.
        inferred
            Whether that is a rule's word and not the trace's.
        """
        if start < end:
            self.span_rows.append((worker, start, end, _CODE[kind], operator, inferred))

    def spans(self, worker: I64, start: I64, end: I64, kind: I64, operator: I64) -> None:
        """Add many spans, one element per span in each column.

        Parameters
        ----------
        worker
            Who did it.
        start, end
            Nanoseconds on the clock that all share; those that take no time are left out later, and counted (`frame`).
        kind
            What it was: places in `ActivityType` (`type_code`).
        operator
            For which operator; -1 for none.
        """
        self.span_tables.append(np.stack([worker, start, end, kind, operator, np.zeros_like(start)], axis=1))

    def message(
        self,
        channel: int,
        sender: int,
        sent: int,
        receiver: int,
        received: int,
        *,
        arrived: int = _NOT_SAID,
        size: int = -1,
        inside: bool = False,
        after: bool = False,
    ) -> None:
        """Add a message.

        Parameters
        ----------
        channel, sender, sent, receiver, received
            Who sent it when to whom.
        arrived
            When it was there, if before it was received.
        size
            Bytes.
        inside
            Whether it is read by what begins in that instant, and not before it.
        after
            Whether it leaves after what is so read.
        """
        self.message_rows.append((channel, sender, sent, receiver, received, arrived, size, inside, after))

    def frame(self) -> pl.DataFrame:
        """Return all spans that take time, each inside another one or beside it."""
        table = np.concatenate([np.array(self.span_rows, np.int64).reshape(-1, 6), *self.span_tables])
        table = table[table[:, 1] < table[:, 2]]
        return pl.DataFrame(dict(zip(_SPAN_COLUMNS, table.T, strict=True)))


def type_code(kind: ActivityType) -> int:
    """Return the place of a type in `ActivityType`."""
    return _CODE[kind]


def event_tables(
    spans: Spans, offsets: Sequence[int], ends: Iterable[EpochEnd], *, first_epoch: int
) -> Iterator[tuple[str, pa.Table]]:
    """Make the rows of `TRACE_EVENTS`.

    Parameters
    ----------
    spans
        What workers did, on the common clock.
    offsets
        Per worker: what leads from its own clock to the common one.
    ends
        Ends of epochs, as workers saw them.
    first_epoch
        The epoch in which all workers begin.

    Yields
    ------
    tuple of str and pa.Table
        Names of files and their rows, by worker and time.
    """
    nested = _nested(spans)
    rows = [*_starts_and_stops(nested), *_message_rows(spans), _epoch_rows(ends)]
    events = pl.concat(rows, how="diagonal").sort("worker", "t_ns", "phase", "rank", maintain_order=True)
    ends_epoch = pl.col("ends").is_not_null()
    before = pl.col("ends").forward_fill().over("worker")
    epoch = pl.when(ends_epoch).then("ends").otherwise(before + 1).fill_null(first_epoch)
    offset = pl.Series(np.array(offsets, np.int64)[events["worker"].to_numpy()])
    events = events.with_columns(
        pl.col("worker").cast(pl.Int32),
        pl.col("peer").cast(pl.Int32),
        epoch=epoch,
        seq=pl.int_range(pl.len(), dtype=pl.Int64).over("worker"),
        t_ns=pl.col("t_ns") - offset,
        arrived_ns=pl.col("arrived_ns") - offset,
    )
    unused = [pl.lit(None, pl.Int64).alias(name) for name in ("scope", "timeout_ns", "records")]
    events = events.with_columns(unused).select(TRACE_EVENTS.names)
    for part_number, table in enumerate(events.iter_slices(_PART_ROWS)):
        yield f"events-{part_number:05}", table.to_arrow().cast(TRACE_EVENTS)


def _nested(spans: Spans) -> pl.DataFrame:
    frame = spans.frame().sort("worker", "start", "end", descending=[False, False, True], maintain_order=True)
    parent, cut_ends, cut_by = nest(*(frame[name].to_numpy() for name in ("worker", "start", "end")))
    spans.cut += int((cut_by >= 0).sum())
    depth, _ = depths(parent, (frame["type"] == _CODE[ActivityType.WAITING]).to_numpy())
    ends = pl.Series(cut_ends)
    return frame.with_columns(end=ends, depth=pl.Series(depth)).filter(frame["start"] < ends)


def _starts_and_stops(nested: pl.DataFrame) -> Iterator[pl.DataFrame]:
    operator = pl.when(pl.col("operator") >= 0).then("operator")
    word = pl.col("type").replace_strict(dict(enumerate(map(str, _TYPES))), return_dtype=pl.String)
    yield nested.select(
        "worker",
        t_ns="start",
        kind=pl.lit(str(EventKind.START)),
        phase=pl.lit(_BEGINS),
        rank="depth",
        activity=word,
        operator=operator,
        inferred=pl.col("inferred") > 0,
    )
    waiting = pl.col("type") == _CODE[ActivityType.WAITING]
    yield nested.select(
        "worker",
        t_ns="end",
        kind=pl.lit(str(EventKind.STOP)),
        phase=pl.when(waiting).then(pl.lit(_WAIT_ENDS)).otherwise(pl.lit(_ENDS)),
        rank=-pl.col("depth"),
        operator=operator,
    )


def _message_rows(spans: Spans) -> Iterator[pl.DataFrame]:
    table = np.array(spans.message_rows, np.int64).reshape(-1, len(_MESSAGE_COLUMNS))
    messages = pl.DataFrame(dict(zip(_MESSAGE_COLUMNS, table.T, strict=True))).sort("sent", maintain_order=True)
    messages = messages.with_columns(
        message_seq=pl.int_range(pl.len(), dtype=pl.Int64).over("channel", "sender", "receiver"),
        rank=pl.lit(0, pl.Int64),
        activity=pl.when(pl.col("channel") != FLOW).then(pl.lit(str(ActivityType.CONTROL_MESSAGE))),
        bytes=pl.when(pl.col("bytes") >= 0).then("bytes"),
    )
    common_columns = ("channel", "message_seq", "rank", "activity", "bytes")
    kind = {name: pl.lit(str(name)) for name in (EventKind.SEND, EventKind.RECEIVE)}
    yield messages.select(
        *common_columns,
        worker="sender",
        peer="receiver",
        t_ns="sent",
        kind=kind[EventKind.SEND],
        phase=pl.when(pl.col("after") > 0).then(pl.lit(_SENT_INSIDE)).otherwise(pl.lit(_SENT)),
    )
    yield messages.select(
        *common_columns,
        worker="receiver",
        peer="sender",
        t_ns="received",
        kind=kind[EventKind.RECEIVE],
        phase=pl.when(pl.col("inside") > 0).then(pl.lit(_READ_INSIDE)).otherwise(pl.lit(_READ)),
        arrived_ns=pl.when(pl.col("arrived") != _NOT_SAID).then("arrived"),
    )


def _epoch_rows(ends: Iterable[EpochEnd]) -> pl.DataFrame:
    rows: dict[str, list[Any]] = {"worker": [], "t_ns": [], "ends": []}
    for end in ends:
        rows["worker"].append(end.worker)
        rows["t_ns"].append(end.t)
        rows["ends"].append(end.epoch)
    frame = pl.DataFrame(rows, schema=dict.fromkeys(rows, pl.Int64))
    return frame.with_columns(kind=pl.lit(str(EventKind.EPOCH_END)), phase=pl.lit(_EPOCH), rank=pl.col("ends"))
