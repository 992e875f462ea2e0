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
        The slice's rows; `reads`, `sent`, `send_id` and `send_epoch` are filled in.
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
    streams, first, sends, seen, lost = follow(parts, horizon_ns)
    receives = _unmatched_receives([part for part, n in zip(parts, lost, strict=True) if n], slice_number)
    left, stream, missing = unmatched_sends(streams, first, workers, seen)
    order = np.argsort(sends[left, VERTEX])
    left, stream, missing = left[order], stream[order], missing[order]
    mine = sends[left]
    seq = np.empty(len(left), np.int64)
    sender = mine[:, VERTEX] >> POSITION_BITS
    for part, low, high in zip(parts, *_bounds(sender, [part.worker for part in parts]), strict=True):
        seq[low:high] = part.seq[(mine[low:high, VERTEX] & MAX_POSITION) // 2 - part.first_order]
    rows = dict(zip(KEY, (*streams[stream].T, mine[:, NUMBER]), strict=True))
    rows |= {"id": mine[:, VERTEX], "t": mine[:, TIME], "epoch": mine[:, EPOCH]}
    rows |= {"slice": np.full(len(left), slice_number), "seq": seq, "missing": missing}
    partly = mine[(streams[stream, 2] == EVERYONE) & (missing < workers), VERTEX]
    return frame_of(rows, SENDS), receives, _readers(parts, partly)


def frame_of(columns: Mapping[str, NDArray[np.integer]], names: Collection[str]) -> pl.DataFrame:
    """Return columns of integers as a frame: for a few rows Polars' own way takes longer than to find them."""
    arrays = [pa.array(columns[name].astype(np.int64, copy=False)) for name in names]
    return pl.DataFrame(pa.Table.from_arrays(arrays, list(names)))


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
    seen: I32
    """A row per lane, which add up: how many receives found each send."""
    lost: I64
    """Per worker: how many receives found none."""


def follow(parts: Sequence[MessageRows], horizon_ns: int = _EVER) -> Followed:
    """Find the send of every receive.

    Parameters
    ----------
    parts
        Rows of different workers; `reads`, `sent`, `send_id` and `send_epoch` are filled in.
    horizon_ns
        What is sent later than so long after a read is not what was read.

    Returns
    -------
    Followed
        O(messages) where channels keep their order.
    """
    streams, first, sends = _streams(parts)
    # Most streams stand where they belong at once, so that whoever looks one up need not search.
    slots = 1 << (8 * len(streams)).bit_length()
    table = index_streams(streams, len(streams), slots)
    # Several workers read one progress message: whoever counts at the same time has counters of its own.
    lanes = min(allowed(), len(parts))
    seen = np.zeros((lanes, len(sends)), np.int32)
    reader = np.full((lanes, len(sends)), -1, np.int32)
    lost = np.zeros(len(parts), np.int64)

    def read(lane: int) -> None:
        hints = first[:-1].copy()
        for place in range(lane, len(parts), lanes):
            part = parts[place]
            part.send_id, part.sent, part.send_epoch = (np.empty(len(part.reads), np.int64) for _ in range(3))
            ends = Ends(part.reads, part.kind, part.channel, part.peer, part.message_seq, part.t)
            reads = Reads(hints, seen[lane], reader[lane], part.send_id, part.sent, part.send_epoch)
            lost[place] = follow_streams(ends, part.worker, Streams(streams, table, first, sends), reads, horizon_ns)

    each(read, range(lanes))
    return Followed(streams, first, sends, seen, lost)


def _bounds(values: I64, wanted: Sequence[int]) -> tuple[I64, I64]:
    """Return where each number begins and ends among ascending values."""
    return np.searchsorted(values, wanted, side="left"), np.searchsorted(values, wanted, side="right")


def _streams(parts: Sequence[MessageRows]) -> tuple[I64, I64, I64]:
    """Return the streams of all workers, where each begins among the sends (and the last ends), and the sends."""

    def find(part: MessageRows) -> tuple[I32, I32, I64, I64]:
        sending, part.reads = message_ends(part.kind)
        which = np.empty(len(sending), np.int32)
        ends = Ends(sending, part.kind, part.channel, part.peer, part.message_seq, part.t)
        return sending, which, *find_streams(ends, part.worker, which)

    found = each(find, parts)
    streams = np.concatenate([np.empty((0, 3), np.int64), *(mine for _, _, mine, _ in found)])
    first = np.cumsum(np.concatenate([[0], *(counts for *_, counts in found)]), dtype=np.int64)
    begin = np.cumsum([0, *(len(mine) for _, _, mine, _ in found)])
    sends = np.empty((first[-1], SEND_COLUMNS), np.int64)

    def fill(place: int) -> None:
        part, (sending, which, *_) = parts[place], found[place]
        ends = first[begin[place] : begin[place + 1] + 1]
        sent = Sent(sending, which, part.message_seq, part.epoch, part.t)
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
        here = np.full(len(lost), part.worker)
        columns = {
            "slice": np.full(len(lost), slice_number),
            "channel": part.channel[lost],
            "sender": part.peer[lost],
            "receiver": np.where(part.kind[lost] == RECEIVE, here, EVERYONE),
            "message_seq": part.message_seq[lost],
            "worker": here,
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
    paired = read.join(unique, on=KEY, how="inner").filter(nw.col("t") <= nw.col("read_ns") + horizon_ns)
    if readers is not None:
        paired = paired.join(readers, on=["id", "worker"], how="anti")
    once = paired.group_by("id", "worker").agg(nw.col("order").min())
    return paired.join(once, on=["id", "worker", "order"], how="inner").select(*STITCHED)


def first_sends(sends: Mapping[str, I64], receives: pl.DataFrame) -> tuple[I64, I64]:
    """Return the places of the first send and of its receive, per receive that has a send.

    To ask Polars for this little, slice after slice, took longer than to find it.
    """
    key, wanted = (np.column_stack([columns[name] for name in KEY]) for columns in (sends, receives))
    places, reads = pair(key, wanted, *index_sends(wanted))
    receive, first = np.unique(reads, return_index=True)
    return places[first], receive


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
        mine = np.flatnonzero(worker == part.worker)
        at = np.searchsorted(part.reads, order[mine] - part.first_order)
        part.sent[at], part.send_id[at], part.send_epoch[at] = sent[mine], send_id[mine], epoch[mine]
