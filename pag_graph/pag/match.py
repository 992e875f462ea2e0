"""Which send belongs to which receive.

Data messages match on (channel, sender, receiver, number), progress messages on (channel, sender, number): a progress
send is a broadcast that every worker receives once. Messages within a slice are matched in its task; what is left
over is a small table that one join over all slices matches (`stitch`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import narwhals.stable.v2 as nw
import numpy as np
import polars as pl

from pag_graph.kernels.activations import PROGRESS_RECEIVE, PROGRESS_SEND, RECEIVE, SEND
from pag_graph.model.ids import POSITION_BITS
from pag_graph.rules.rows import NEVER

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from pag_graph.rules.rows import WorkerRows

KEY = ["channel", "sender", "receiver", "message_seq"]
"""Key of a message; `receiver` is -1 for a progress message, which goes to all."""

SENDS = {"slice": pl.Int64, **dict.fromkeys(KEY, pl.Int64), "id": pl.Int64, "t": pl.Int64, "epoch": pl.Int64}
SENDS |= {"seq": pl.Int64, "missing": pl.Int64}
"""Columns of the sends that a slice could not match; `missing` counts the receives that it did not find."""

RECEIVES = {"slice": pl.Int64, **dict.fromkeys(KEY, pl.Int64), "worker": pl.Int64, "order": pl.Int64, "seq": pl.Int64}
"""Columns of the receives that a slice could not match."""

STITCHED = ["slice", "worker", "order", "id", "t", "epoch"]
"""Columns of `stitch`: which send (its vertex, time and epoch) each receive of a slice belongs to."""


def _columns(parts: Sequence[WorkerRows], name: str) -> NDArray[np.int64]:
    return np.concatenate([getattr(part, name) for part in parts]).astype(np.int64)


def match(parts: Sequence[WorkerRows], *, slice_number: int, workers: int) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Match the messages whose both ends lie in one slice.

    Parameters
    ----------
    parts
        The slice's rows; `sent`, `send_id` and `send_epoch` are filled in.
    slice_number
        Its number.
    workers
        How many workers the run has: so often is a progress message received.

    Returns
    -------
    sends, receives
        What could not be matched here; columns `SENDS` and `RECEIVES`.

    Notes
    -----
    One hash join, O(messages). Of several sends with one key (a corrupt log) the first counts, and the others stay
    unmatched.
    """
    kind = np.concatenate([part.kind for part in parts])
    worker = np.repeat([part.worker for part in parts], [part.rows for part in parts]).astype(np.int64)
    order = np.concatenate([np.arange(part.first_order, part.first_order + part.rows) for part in parts])
    common = {name: _columns(parts, name) for name in ("channel", "message_seq", "seq")}
    peer, t, epoch = (_columns(parts, name) for name in ("peer", "t", "epoch"))

    def rows(wanted: NDArray[np.bool_], **more: NDArray[Any]) -> pl.DataFrame:
        return pl.DataFrame({name: values[wanted] for name, values in {**common, **more}.items()})

    everyone = np.full(len(kind), -1, np.int64)
    is_send, is_receive = (kind == SEND) | (kind == PROGRESS_SEND), (kind == RECEIVE) | (kind == PROGRESS_RECEIVE)
    sends = rows(
        is_send,
        sender=worker,
        receiver=np.where(kind == SEND, peer, everyone),
        id=worker << POSITION_BITS | 2 * order,
        t=t,
        epoch=epoch,
    ).with_row_index("send")
    receives = rows(
        is_receive,
        sender=peer,
        receiver=np.where(kind == RECEIVE, worker, everyone),
        worker=worker,
        order=order,
        row=np.arange(len(kind)),
    )
    first = sends.unique(KEY, keep="first", maintain_order=True)
    joined = receives.join(first.drop("seq"), on=KEY, how="left", maintain_order="left")
    found = joined.filter(pl.col("send").is_not_null())
    sent, send_id, send_epoch = (np.full(len(kind), absent, np.int64) for absent in (NEVER, -1, -1))
    at = found["row"].to_numpy()
    sent[at], send_id[at], send_epoch[at] = (found[name].to_numpy() for name in ("t", "id", "epoch"))
    bounds = np.cumsum([0, *(part.rows for part in parts)])
    for part, low, high in zip(parts, bounds, bounds[1:], strict=False):
        part.sent, part.send_id, part.send_epoch = sent[low:high], send_id[low:high], send_epoch[low:high]
    seen = np.bincount(found["send"].to_numpy(), minlength=sends.height)
    expected = np.where(sends["receiver"].to_numpy() >= 0, 1, workers)
    number = pl.lit(slice_number, pl.Int64).alias("slice")
    left_sends = sends.with_columns(number, missing=pl.Series(expected - seen, dtype=pl.Int64))
    left_receives = joined.filter(pl.col("send").is_null()).with_columns(number)
    return (
        left_sends.filter(pl.col("missing") != 0).select(pl.col(name).cast(kind) for name, kind in SENDS.items()),
        left_receives.select(pl.col(name).cast(kind) for name, kind in RECEIVES.items()),
    )


def stitch(sends: nw.LazyFrame[Any], receives: nw.LazyFrame[Any]) -> nw.LazyFrame[Any]:
    """Match what the slices left over.

    Parameters
    ----------
    sends, receives
        Leftovers of all slices; one row per message end.

    Returns
    -------
    LazyFrame
        One row per receive whose send was found, columns `STITCHED`; `slice` is the receive's.
    """
    # Of several sends with one key the one with the lowest vertex counts: the same whichever way rows are spread.
    first = sends.group_by(*KEY).agg(nw.col("id").min())
    unique = sends.select(*KEY, "id", "t", "epoch").join(first, on=[*KEY, "id"], how="inner")
    return receives.select("slice", *KEY, "worker", "order").join(unique, on=KEY, how="inner").select(*STITCHED)


def apply_stitched(parts: Sequence[WorkerRows], stitched: pl.DataFrame) -> None:
    """Fill in the sends that `stitch` found for the receives of a slice.

    Parameters
    ----------
    parts
        The slice's rows, after `match`.
    stitched
        Rows of `stitch` for this slice.
    """
    for part in parts:
        mine = stitched.filter(pl.col("worker") == part.worker)
        at = mine["order"].to_numpy() - part.first_order
        part.sent[at], part.send_id[at], part.send_epoch[at] = (mine[c].to_numpy() for c in ("t", "id", "epoch"))
