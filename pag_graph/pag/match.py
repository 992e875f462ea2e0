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

from pag_graph.kernels.activations import PROGRESS_RECEIVE, RECEIVE
from pag_graph.kernels.messages import EVERYONE, collect_sends, count_sends, find_sends, index_sends
from pag_graph.kernels.threads import CORES, each
from pag_graph.model.ids import MAX_POSITION
from pag_graph.rules.rows import NEVER

if TYPE_CHECKING:
    from collections.abc import Sequence

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
    One hash table of the sends, O(messages). Of several sends with one key (a corrupt log) the first counts, and the
    others stay unmatched.
    """
    first = np.cumsum([0, *(count_sends(part.kind) for part in parts)])
    key, origin = np.empty((first[-1], 4), np.int64), np.empty((first[-1], 3), np.int64)

    def collect(place: int) -> None:
        part = parts[place]
        ends = part.kind, part.channel, part.peer, part.message_seq
        collect_sends(*ends, part.epoch, part.t, part.worker, part.first_order, first[place], key, origin)

    each(collect, range(len(parts)))
    table, _ = index_sends(key)
    # Several workers read one progress message: whoever counts at the same time has counters of its own.
    lanes = min(CORES, len(parts))
    seen = np.zeros((lanes, len(key)), np.int32)
    lost = np.zeros(len(parts), np.int64)

    def find(lane: int) -> None:
        for place in range(lane, len(parts), lanes):
            part = parts[place]
            part.send_id, part.sent, part.send_epoch = (np.empty(part.rows, np.int64) for _ in range(3))
            ends = part.kind, part.channel, part.peer, part.message_seq
            found = part.send_id, part.sent, part.send_epoch
            lost[place] = find_sends(*ends, part.worker, key, origin, table, NEVER, seen[lane], *found)

    each(find, range(lanes))
    receives = [_unmatched_receives(part, slice_number) for part, count in zip(parts, lost, strict=True) if count]
    missing = np.where(key[:, 2] == EVERYONE, workers, 1) - seen.sum(axis=0)
    left = np.flatnonzero(missing)
    seq = np.empty(len(left), np.int64)
    for part, low, high in zip(parts, *np.searchsorted(left, [first[:-1], first[1:]]), strict=True):
        seq[low:high] = part.seq[(origin[left[low:high], 0] & MAX_POSITION) // 2 - part.first_order]
    sends = {name: key[left, place] for place, name in enumerate(KEY)}
    sends |= {name: origin[left, place] for place, name in enumerate(("id", "t", "epoch"))}
    sends |= {"slice": np.full(len(left), slice_number), "seq": seq, "missing": missing[left]}
    return (
        pl.DataFrame({name: sends[name] for name in SENDS}, schema=SENDS),
        pl.concat([pl.DataFrame(schema=RECEIVES), *receives]),
    )


def _unmatched_receives(part: WorkerRows, slice_number: int) -> pl.DataFrame:
    at = np.flatnonzero(((part.kind == RECEIVE) | (part.kind == PROGRESS_RECEIVE)) & (part.send_id < 0))
    everyone, here = np.full(len(at), EVERYONE), np.full(len(at), part.worker)
    rows = {
        "slice": np.full(len(at), slice_number),
        "channel": part.channel[at],
        "sender": part.peer[at],
        "receiver": np.where(part.kind[at] == RECEIVE, here, everyone),
        "message_seq": part.message_seq[at],
        "worker": here,
        "order": part.first_order + at,
        "seq": part.seq[at],
    }
    return pl.DataFrame(rows, schema=RECEIVES)


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
