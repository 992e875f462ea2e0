"""Segments of which a removal leaves a part: what went of them, so that those who show a segment show all of it.

A worker that never waits has one segment, from its first event on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from pag_graph.model.enums import LOCAL_TYPES, ActivityType
from pag_graph.store.fresh import rows_of_files

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from pag_graph.store.compaction import Swap
    from pag_graph.store.delta import StoreInfo
    from pag_graph.store.parts import PartFile

_SPENT = [str(kind) for kind in LOCAL_TYPES if kind is not ActivityType.WAITING]
_FIRST, _LAST = ("first", "epoch", "start_ns"), ("last", "last_epoch", "end_ns")
_LOCAL = [str(kind) for kind in LOCAL_TYPES]
_TIMES = pl.Schema({"type": pl.String, "operator": pl.Int64, "duration_ns": pl.Int64})
_OF_SEGMENT = pl.Schema([("segment", pl.Int64), *_TIMES.items()])
_ENDS = pl.Schema({"id": pl.Int64, "ended": pl.Int64})
_ROWS_TOGETHER = 1_000_000
"""Rows of files that are read together: of fewer, calls of Polars take longer than the rows."""
CUT_SEGMENTS = pl.Schema(
    [
        *(("segment", pl.Int64), ("round", pl.Int64), ("worker", pl.Int32), ("events", pl.Int64)),
        *((name, pl.Int64) for name in (*_FIRST, *_LAST)),
        *((name, pl.List(kind)) for name, kind in (*_TIMES.items(), *_ENDS.items())),
    ]
)
"""One row per segment that began before the epochs that are left, and that vertices which stay belong to: the round in
which it began (null where nobody knows), how many of its vertices went, the first and the last of these with their
epochs and times (null where none went); by type and operator, how long what went of its activities took; and of which
operator (``ended``) such an activity was that ended at a vertex which stays (``id``)."""


def cut_segments(
    info: StoreInfo, swaps: Mapping[str, Swap], stays: Mapping[str, pl.Expr], opens_ns: int, before: pl.DataFrame
) -> pl.DataFrame:
    """Find what goes of segments of which a part stays.

    Parameters
    ----------
    info
        The state of the store before the removal.
    swaps
        Per table, `vertices` and `edges` among them: files that go, and those with what stays of them.
    stays
        Which rows of these files stay, per table.
    opens_ns
        When the first window opens that stays. What goes has ended then.
    before
        What has gone before: rows of `CUT_SEGMENTS`.

    Returns
    -------
    DataFrame
        Rows of `CUT_SEGMENTS`, ascending. O(what goes), some files at a time.

    Raises
    ------
    StoreError
        If a file is damaged.
    """
    left = _left(info, swaps["vertices"], opens_ns)
    cut = _vertices(info, swaps["vertices"], ~stays["vertices"], before, left["segment"])
    facts = left.select("segment").unique().join(cut, on="segment", how="full", coalesce=True).sort("segment")
    ends = facts.select("segment", "last").join(
        left.group_by("segment").agg(pl.col("id").max()), on="segment", how="left", maintain_order="left"
    )
    first, last = ends["segment"].to_numpy(), ends.select(pl.max_horizontal("last", "id")).to_series().to_numpy()
    begin_ns = pl.concat([facts["start_ns"], left["t_ns"]]).min()
    # What ends before any of these segments begins lies in none of them.
    near = pl.col("max_start_ns") + pl.max_horizontal("max_duration_ns", pl.lit(0)) >= begin_ns
    near_paths = {part.path for part in info.parts("edges", near)}
    going = [part for part in swaps["edges"].removed if part.path in near_paths]
    times, ended = _activities(info, going, ~stays["edges"], before, (first, last), left["id"])
    in_segments = left.select("id", "segment").join(ended, on="id").sort("id").group_by("segment", maintain_order=True)
    rounds = _rounds(info, facts, left, before)
    known = facts.with_columns(rounds, pl.col("events").fill_null(0))
    for lists in (times, in_segments.agg(pl.col(list(_ENDS)))):
        known = known.join(lists, on="segment", how="left", maintain_order="left")
    lists_known = known.with_columns(pl.col([*_TIMES, *_ENDS]).fill_null([]))
    return lists_known.select(*CUT_SEGMENTS).cast(CUT_SEGMENTS)


def _left(info: StoreInfo, swap: Swap, opens_ns: int) -> pl.DataFrame:
    """Return the vertices up to an instant that stay: ``id``, ``segment`` and ``t_ns``."""
    going = {part.path for part in swap.removed}
    parts = [part for part in info.parts("vertices", pl.col("min_t_ns") <= opens_ns) if part.path not in going]
    columns = {"id": pl.Int64, "segment": pl.Int64, "t_ns": pl.Int64}
    frames = _read(info, "vertices", [*parts, *swap.added], list(columns))
    return pl.concat([pl.DataFrame(schema=columns), *(rows.filter(pl.col("t_ns") <= opens_ns) for rows in frames)])


def _vertices(info: StoreInfo, swap: Swap, gone: pl.Expr, before: pl.DataFrame, left: pl.Series) -> pl.DataFrame:
    """Return the first and the last vertex that goes of each segment that has others, and how many go.

    Those are the segments of vertices that stay, and the last one of each worker: it may go on.
    """
    columns = ["segment", "worker", *_FIRST, *_LAST, "events"]
    latest: dict[int, int] = {}

    def may_go_on(rows: pl.DataFrame) -> pl.DataFrame:
        for worker, segment in rows.group_by("worker").agg(pl.col("segment").max()).iter_rows():
            latest[worker] = max(segment, latest.get(worker, segment))
        return rows.filter(pl.col("segment").is_in([*latest.values()]) | pl.col("segment").is_in(left.implode()))

    frames = [may_go_on(before.filter(pl.col("events") > 0).select(columns))]
    files = _read(info, "vertices", swap.removed, ["id", "worker", "epoch", "t_ns", "segment"])
    frames.extend(_of_segments(may_go_on(rows.filter(gone))).select(columns) for rows in files)
    together = may_go_on(pl.concat(frames))
    return together.group_by("segment").agg(
        pl.col("worker").first(),
        pl.col(_FIRST).sort_by("first").first(),
        pl.col(_LAST).sort_by("last").last(),
        pl.col("events").sum(),
    )


def _of_segments(vertices: pl.DataFrame) -> pl.DataFrame:
    ends = {"id": ("first", "last"), "epoch": ("epoch", "last_epoch"), "t_ns": ("start_ns", "end_ns")}
    return (
        vertices.sort("id")
        .group_by("segment")
        .agg(
            pl.col("worker").first(),
            *(pl.col(name).first().alias(first) for name, (first, _) in ends.items()),
            *(pl.col(name).last().alias(last) for name, (_, last) in ends.items()),
            events=pl.len().cast(pl.Int64),
        )
    )


def _activities(
    info: StoreInfo,
    parts: Sequence[PartFile],
    gone: pl.Expr,
    before: pl.DataFrame,
    segments: tuple[NDArray[np.int64], NDArray[np.int64]],
    left: pl.Series,
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return how long activities took that go, per segment: lists of `_TIMES`; and those that end at some vertices.

    `segments` are their first and their last vertices. Ids of a worker rise, so what begins between is of the segment.
    """
    first, last = segments
    by_kind = ["segment", "type", "operator"]
    spent = [before.select("segment", *_TIMES).explode(list(_TIMES)).drop_nulls("type")]
    ended = [before.select(*_ENDS).explode(list(_ENDS)).drop_nulls("id")]
    columns = ["src", "dst", "type", "operator", "duration_ns", "start_ns", "epoch"]
    for rows in _read(info, "edges", parts, columns):
        local = rows.filter(gone, pl.col("type").is_in(_LOCAL))
        at_left = local.filter(pl.col("dst").is_in(left.implode())).drop_nulls("operator")
        ended.append(at_left.select(id="dst", ended="operator"))
        edges = local.filter(pl.col("type").is_in(_SPENT))
        src = edges["src"].to_numpy()
        place = np.searchsorted(first, src, side="right") - 1
        inside = (place >= 0) & (src <= last[place]) if len(first) else np.zeros(len(src), np.bool_)
        segment = pl.Series("segment", first[place[inside]], dtype=pl.Int64)
        sums = edges.filter(pl.Series(inside)).select(segment, *_TIMES).group_by(by_kind)
        spent.append(sums.agg(pl.col("duration_ns").sum()).cast(_OF_SEGMENT))
    together = pl.concat(spent).filter(pl.col("segment").is_in(pl.Series(first, dtype=pl.Int64).implode()))
    each = together.group_by(by_kind).agg(pl.col("duration_ns").sum()).sort(by_kind)
    lists = each.group_by("segment", maintain_order=True).agg(pl.col(list(_TIMES)))
    return lists, pl.concat([frame.cast(_ENDS) for frame in ended])


def _rounds(info: StoreInfo, facts: pl.DataFrame, left: pl.DataFrame, before: pl.DataFrame) -> pl.Series:
    """Return the rounds in whose windows segments begin, in the order of `facts`; null where nobody knows."""
    begins = left.filter(pl.col("id") == pl.col("segment")).select("segment", begun_ns="t_ns")
    known = (
        facts.join(begins, on="segment", how="left", maintain_order="left")
        .join(before.select("segment", "round"), on="segment", how="left", maintain_order="left")
        .with_columns(begun_ns=pl.when(pl.col("first") == pl.col("segment")).then("start_ns").otherwise("begun_ns"))
    )
    epochs = info.scan("epochs").select("epoch", "end_ns").sort("end_ns", "epoch").collect()
    place = epochs["end_ns"].search_sorted(known["begun_ns"].fill_null(0), side="left")
    found = epochs["epoch"].gather(place.clip(0, epochs.height - 1))
    # What began in epochs that had gone before is known from then, or not at all.
    is_there = known["begun_ns"] > (-1 if info.removed is None else info.removed.end_ns)
    return known.select(pl.coalesce("round", pl.when(is_there).then(found)).alias("round")).to_series()


def _read(info: StoreInfo, table: str, parts: Iterable[PartFile], columns: Sequence[str]) -> Iterator[pl.DataFrame]:
    """Read some columns of files, of small ones together."""
    together: list[PartFile] = []
    rows = 0

    def read() -> pl.DataFrame:
        return rows_of_files(info.path.absolute() / table, together, info.fresh).select(columns).collect()

    for part in parts:
        if together and rows + part.rows > _ROWS_TOGETHER:
            yield read()
            together, rows = [], 0
        together.append(part)
        rows += part.rows
    if together:
        yield read()
