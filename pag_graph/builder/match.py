"""Which send belongs to which receive.

Data messages match on (channel, sender, receiver, number), progress messages on (channel, sender, number): a progress
send is a broadcast that every worker receives once. Messages within a slice are matched in its task; what is left
over is a small table that one join over all slices matches (`stitch`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import narwhals.stable.v2 as nw
import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from pag_graph.kernels.activations import RECEIVE
from pag_graph.kernels.messages import EVERYONE, index_sends, pair
from pag_graph.kernels.streams import (
    EPOCH,
    NUMBER,
    SEND_COLUMNS,
    TIME,
    VERTEX,
    Ends,
    Reads,
    Sent,
    Streams,
    fill_streams,
    find_streams,
    follow_streams,
    index_streams,
    message_ends,
    order_streams,
    unmatched_sends,
)
from pag_graph.model.ids import MAX_POSITION, POSITION_BITS
from pag_graph.runtime.threads import allowed, each

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from pag_graph.rules.rows import MessageRows, WorkerRows

I32 = NDArray[np.int32]
I64 = NDArray[np.int64]

_EVER = np.iinfo(np.int64).max
KEY = ["channel", "sender", "receiver", "message_seq"]
"""Key of a message; `receiver` is -1 for a progress message, which goes to all."""

SENDS = {"slice": pl.Int64, **dict.fromkeys(KEY, pl.Int64), "id": pl.Int64, "t": pl.Int64, "epoch": pl.Int64}
SENDS |= {"seq": pl.Int64, "missing": pl.Int64}
"""Columns of the sends that a slice could not match; `missing` counts the receives that it did not find."""

READERS = {"id": pl.Int64, "worker": pl.Int64}
"""Columns of who read a message that others have not read: the vertex of its send, and the worker."""

RECEIVES = {"slice": pl.Int64, **dict.fromkeys(KEY, pl.Int64), "worker": pl.Int64, "order": pl.Int64, "seq": pl.Int64}
RECEIVES |= {"t": pl.Int64, "peer": pl.Int64}
"""Columns of the receives that a slice could not match."""

STITCHED = ["slice", "worker", "order", "id", "t", "epoch"]
"""Columns of `stitch`: which send (its vertex, time and epoch) each receive of a slice belongs to."""


def match(
    parts: Sequence[WorkerRows], *, slice_number: int, workers: int, horizon_ns: int
) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """Match the messages whose both ends lie in one slice.

    Parameters
    ----------
    parts
        The slice's rows; `reads` and what follows it are filled in.
    slice_number
        Its number.
    workers
        How many workers the run has: so often is a progress message received.
    horizon_ns
        What is sent later than so long after a read is not what was read.

    Returns
    -------
    sends, receives
        What could not be matched here; columns `SENDS` and `RECEIVES`.
    readers
        Who read those of the sends of which some receives are here, columns `READERS`.

    Notes
    -----
    O(messages) where channels keep their order (`pag_graph.kernels.streams`). Of several sends with one key (a corrupt
    log) the first counts, and the others stay unmatched; of several receives of a message by one worker, likewise.
    """
    streams, first, sends, receive_counts, lost = follow(parts, horizon_ns)
    receives = _unmatched_receives([part for part, n in zip(parts, lost, strict=True) if n], slice_number)
    unread, stream, missing = unmatched_sends(streams, first, workers, receive_counts)
    order = np.argsort(sends[unread, VERTEX])
    unread, stream, missing = unread[order], stream[order], missing[order]
    unread_sends = sends[unread]
    seq = np.empty(len(unread), np.int64)
    sender = unread_sends[:, VERTEX] >> POSITION_BITS
    for part, low, high in zip(parts, *_bounds(sender, [part.worker for part in parts]), strict=True):
        seq[low:high] = part.seq[(unread_sends[low:high, VERTEX] & MAX_POSITION) // 2 - part.first_order]
    rows = dict(zip(KEY, (*streams[stream].T, unread_sends[:, NUMBER]), strict=True))
    rows |= {"id": unread_sends[:, VERTEX], "t": unread_sends[:, TIME], "epoch": unread_sends[:, EPOCH]}
    rows |= {"slice": np.full(len(unread), slice_number), "seq": seq, "missing": missing}
    partly = unread_sends[(streams[stream, 2] == EVERYONE) & (missing < workers), VERTEX]
    return frame_of(rows, SENDS), receives, _readers(parts, partly)


def frame_of(columns: Mapping[str, NDArray[np.integer]], names: Collection[str]) -> pl.DataFrame:
    """Return columns of integers as a frame.

    Parameters
    ----------
    columns
        Arrays of one length.
    names
        Which of them, in this order.

    Returns
    -------
    DataFrame
        Of int64. For a few rows Polars' own way takes longer than to find them, and a table twice as long as a batch.
    """
    arrays = [pa.array(columns[name].astype(np.int64, copy=False)) for name in names]
    return pl.DataFrame(pa.record_batch(arrays, list(names)))


_NO_RECEIVES = pl.DataFrame(schema=RECEIVES)
_NO_READERS = pl.DataFrame(schema=READERS)


def _readers(parts: Sequence[WorkerRows], sends: I64) -> pl.DataFrame:
    """Return who read any of these sends, given by their vertices."""
    if not len(sends):
        return _NO_READERS
    read = [part.send_id[np.isin(part.send_id, sends)] for part in parts]
    workers = np.repeat([part.worker for part in parts], [len(sends_read) for sends_read in read])
    return frame_of({"id": np.concatenate(read), "worker": workers}, READERS)


class Followed(NamedTuple):
    """All streams of messages of some rows, and what was read of them (`pag_graph.kernels.streams`)."""

    streams: I64
    """Channel, sender and receiver of each."""
    first: I64
    """Per stream: its first send; one more number says where the last one ends."""
    sends: I64
    """A row per send."""
    receive_counts: I32
    """A row per lane, which add up: how many receives found each send."""
    lost: I64
    """Per worker: how many receives found none."""


def follow(parts: Sequence[MessageRows], horizon_ns: int = _EVER) -> Followed:
    """Find the send of every receive.

    Parameters
    ----------
    parts
        Rows of different workers; `reads` and what follows it are filled in.
    horizon_ns
        What is sent later than so long after a read is not what was read.

    Returns
    -------
    Followed
        O(messages) where channels keep their order.
    """
    streams, first, sends = _streams(parts)
    # The table is large enough that most streams stand in their own slot, and a look-up need not search.
    slots = 1 << (8 * len(streams)).bit_length()
    table = index_streams(streams, len(streams), slots)
    # Several workers read one progress message, so each lane that counts at the same time has its own counters.
    lanes = min(allowed(), len(parts))
    receive_counts = np.zeros((lanes, len(sends)), np.int32)
    reader = np.full((lanes, len(sends)), -1, np.int32)
    lost = np.zeros(len(parts), np.int64)

    def read(lane: int) -> None:
        hints = first[:-1].copy()
        for number in range(lane, len(parts), lanes):
            part = parts[number]
            of_reads = [np.empty(len(part.reads), np.int64) for _ in range(4)]
            part.sender, part.send_id, part.sent, part.send_epoch = of_reads
            ends = Ends(part.reads, part.kind, part.channel, part.peer, part.message_seq, part.t)
            reads = Reads(hints, receive_counts[lane], reader[lane], *of_reads)
            lost[number] = follow_streams(ends, part.worker, Streams(streams, table, first, sends), reads, horizon_ns)

    each(read, range(lanes))
    return Followed(streams, first, sends, receive_counts, lost)


def _bounds(values: I64, numbers: Sequence[int]) -> tuple[I64, I64]:
    """Return where each number begins and ends among ascending values."""
    return np.searchsorted(values, numbers, side="left"), np.searchsorted(values, numbers, side="right")


def _streams(parts: Sequence[MessageRows]) -> tuple[I64, I64, I64]:
    """Return the streams of all workers, where each begins among the sends (and the last ends), and the sends."""

    def find(part: MessageRows) -> tuple[I32, I32, I64, I64]:
        sending, part.reads = message_ends(part.kind)
        stream_of_send = np.empty(len(sending), np.int32)
        ends = Ends(sending, part.kind, part.channel, part.peer, part.message_seq, part.t)
        return sending, stream_of_send, *find_streams(ends, part.worker, stream_of_send)

    streams_of_workers = each(find, parts)
    streams = np.concatenate(
        [np.empty((0, 3), np.int64), *(own_streams for _, _, own_streams, _ in streams_of_workers)]
    )
    first = np.cumsum(np.concatenate([[0], *(counts for *_, counts in streams_of_workers)]), dtype=np.int64)
    begin = np.cumsum([0, *(len(own_streams) for _, _, own_streams, _ in streams_of_workers)])
    sends = np.empty((first[-1], SEND_COLUMNS), np.int64)

    def fill(number: int) -> None:
        part, (sending, stream_of_send, *_) = parts[number], streams_of_workers[number]
        ends = first[begin[number] : begin[number + 1] + 1]
        sent = Sent(sending, stream_of_send, part.message_seq, part.epoch, part.t)
        if not fill_streams(sent, part.worker, part.first_order, ends[:-1].copy(), sends):
            order_streams(ends, sends)

    each(fill, range(len(parts)))
    return streams, first, sends


def _unmatched_receives(parts: Sequence[WorkerRows], slice_number: int) -> pl.DataFrame:
    """Return the receives of workers that found no send, columns `RECEIVES`."""
    if not parts:
        return _NO_RECEIVES
    rows: dict[str, list[I64]] = {name: [] for name in RECEIVES}
    for part in parts:
        lost = part.reads[part.send_id < 0]
        receiver = np.full(len(lost), part.worker)
        columns = {
            "slice": np.full(len(lost), slice_number),
            "channel": part.channel[lost],
            "sender": part.peer[lost],
            "receiver": np.where(part.kind[lost] == RECEIVE, receiver, EVERYONE),
            "message_seq": part.message_seq[lost],
            "worker": receiver,
            "order": part.first_order + lost,
            "seq": part.seq[lost],
            "t": part.t[lost],
            "peer": part.peer[lost],
        }
        for name, values in columns.items():
            rows[name].append(values)
    return frame_of({name: np.concatenate(values) for name, values in rows.items()}, RECEIVES)


def stitch(
    sends: nw.LazyFrame[Any], receives: nw.LazyFrame[Any], readers: nw.LazyFrame[Any] | None, horizon_ns: int
) -> nw.LazyFrame[Any]:
    """Match what the slices left over.

    Parameters
    ----------
    sends, receives
        Leftovers of all slices; one row per message end.
    readers
        Who read some of the sends in their own slices, columns `READERS`; None for nobody.
    horizon_ns
        What is sent later than so long after a read is not what was read.

    Returns
    -------
    LazyFrame
        One row per receive whose send was found, columns `STITCHED`; `slice` is the receive's.
    """
    # Of several sends with one key the one with the lowest vertex counts: the same whichever way rows are spread.
    first = sends.group_by(*KEY).agg(nw.col("id").min())
    unique = sends.select(*KEY, "id", "t", "epoch").join(first, on=[*KEY, "id"], how="inner")
    read = receives.select("slice", *KEY, "worker", "order", read_ns="t")
    paired = read.join(unique, on=KEY, how="inner").filter(nw.col("t") - nw.col("read_ns") <= horizon_ns)
    if readers is not None:
        paired = paired.join(readers, on=["id", "worker"], how="anti")
    once = paired.group_by("id", "worker").agg(nw.col("order").min())
    return paired.join(once, on=["id", "worker", "order"], how="inner").select(*STITCHED)


def first_sends(sends: Mapping[str, I64], receives: pl.DataFrame) -> tuple[I64, I64]:
    """Look up the sends of receives.

    Parameters
    ----------
    sends
        Columns `SENDS`, as arrays.
    receives
        Columns `RECEIVES`.

    Returns
    -------
    send, receive
        Per receive that has a send: the row of the first send of that key, and its own row, ascending. O(sends +
        receives).

    Notes
    -----
    A Polars join, slice after slice, took longer than this for so few rows.
    """
    key = np.column_stack([sends[name] for name in KEY])
    receive_key = np.column_stack([receives[name].to_numpy() for name in KEY])
    send_rows, reads = pair(key, receive_key, *index_sends(receive_key))
    receive, first = np.unique(reads, return_index=True)
    return send_rows[first], receive


def apply_stitched(parts: Sequence[WorkerRows], stitched: pl.DataFrame) -> None:
    """Fill in the sends that `stitch` found for the receives of a slice.

    Parameters
    ----------
    parts
        The slice's rows, after `match`.
    stitched
        Rows of `stitch` for this slice.
    """
    worker, order, sent, send_id, epoch = (stitched[c].to_numpy() for c in ("worker", "order", "t", "id", "epoch"))
    for part in parts:
        stitched_rows = np.flatnonzero(worker == part.worker)
        reads = np.searchsorted(part.reads, order[stitched_rows] - part.first_order)
        part.sent[reads], part.send_id[reads], part.send_epoch[reads] = (
            sent[stitched_rows],
            send_id[stitched_rows],
            epoch[stitched_rows],
        )
