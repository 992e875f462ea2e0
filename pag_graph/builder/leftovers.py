"""What tasks tell each other by files: messages of which a slice has one end only."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import polars as pl

from pag_graph.builder.match import READERS, RECEIVES, SENDS, STITCHED
from pag_graph.builder.sends import SendBook
from pag_graph.errors import StoreError
from pag_graph.store.in_place import refused

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pag_graph.builder.state import SliceScan

_HELD_ROWS = 500_000
"""Leftovers that are held in memory before they are written, about."""
_ALL = pl.lit(value=True)
_LEFT = ("sends", "receives", "readers", "stitched")


def make_folders(staging: Path) -> None:
    """Make the folders of what slices leave over and of what is found for it.

    Parameters
    ----------
    staging
        Folder of the build; made.
    """
    for name in _LEFT:
        (staging / name).mkdir(parents=True, exist_ok=True)


def without_messages(scan: SliceScan) -> SliceScan:
    """Return a scan with its counters only.

    Parameters
    ----------
    scan
        Of a slice.

    Returns
    -------
    SliceScan
        Without its sends, receives and readers, which tasks write to files.
    """
    return replace(scan, sends=scan.sends.clear(), receives=scan.receives.clear(), readers=scan.readers.clear())


class Leftovers:
    """Collects what the slices of a task leave over, in few files.

    Parameters
    ----------
    staging
        Folder of the build.
    first
        Number of the first slice: names the files.
    """

    def __init__(self, staging: Path, first: int) -> None:
        self._staging, self._first, self._written = staging, first, 0
        self._held: dict[str, list[pl.DataFrame]] = {"sends": [], "receives": [], "readers": []}

    def add(self, slice_scan: SliceScan) -> SliceScan:
        """Add a slice; only its counters are returned.

        Parameters
        ----------
        slice_scan
            Of the next slice of the task.

        Returns
        -------
        SliceScan
            Its counters only.

        Raises
        ------
        StoreError
            If the file system refuses.
        """
        self._held["sends"].append(slice_scan.sends)
        self._held["receives"].append(slice_scan.receives)
        self._held["readers"].append(slice_scan.readers)
        if sum(frame.height for frames in self._held.values() for frame in frames) > _HELD_ROWS:
            self.write()
        return without_messages(slice_scan)

    def write(self) -> None:
        """Write what is held.

        Raises
        ------
        StoreError
            If the file system refuses.
        """
        for name, frames in self._held.items():
            rows = pl.concat(frames) if frames else pl.DataFrame()
            if rows.height:
                file = self._staging / name / f"slice-{self._first:06}-{self._written:06}.parquet"
                write_left(rows, file)
            frames.clear()
        self._written += 1


def write_left(rows: pl.DataFrame, file: Path) -> None:
    """Write rows to the staging folder.

    Parameters
    ----------
    rows
        Columns of integers.
    file
        In a folder that exists.

    Raises
    ------
    StoreError
        If the file system refuses.
    """  # noqa: DOC501  (the named constructor is taken for an exception)
    try:
        # Read once and thrown away: to pack it takes longer than to write it.
        rows.write_parquet(file, compression="uncompressed")
    except (OSError, pl.exceptions.ComputeError) as error:
        raise refused(file, "", error, StoreError) from error


def left_files(staging: Path, name: str) -> list[Path]:
    """Return the files of what slices left over.

    Parameters
    ----------
    staging
        Folder of the build.
    name
        ``sends``, ``receives`` or ``readers``; or ``stitched`` for what was found for them.

    Returns
    -------
    list of Path
        In the order of slices.
    """
    return sorted((staging / name).glob("*.parquet"))


def _rows(staging: Path, name: str, schema: Any) -> pl.LazyFrame:
    files = left_files(staging, name)
    return pl.scan_parquet(files, glob=False, hive_partitioning=False) if files else pl.LazyFrame(schema=schema)


def stitched(staging: Path) -> pl.LazyFrame:
    """Return the rows of `pag_graph.builder.match.stitch` of all slices.

    Parameters
    ----------
    staging
        Folder of the build.

    Returns
    -------
    LazyFrame
        One row per read whose send another slice has, columns `STITCHED`.
    """
    return _rows(staging, "stitched", dict.fromkeys(STITCHED, pl.Int64))


def stitched_of(staging: Path, number: int) -> pl.DataFrame:
    """Return the rows of `stitched` whose reads lie in one slice.

    Parameters
    ----------
    staging
        Folder of the build.
    number
        Number of the slice.

    Returns
    -------
    DataFrame
        Columns `STITCHED`.
    """
    return stitched(staging).filter(pl.col("slice") == number).collect()


def lost_reads(staging: Path) -> pl.DataFrame:
    """Return the reads of all slices that belong to no send, columns `RECEIVES`.

    Parameters
    ----------
    staging
        Folder of the build.

    Returns
    -------
    DataFrame
        One row per read, columns `RECEIVES`.
    """
    receives = _rows(staging, "receives", RECEIVES)
    return receives.join(stitched(staging), on=["worker", "order"], how="anti").collect()


def unread_sends(staging: Path) -> SendBook:
    """Return the sends of all slices that were not read as often as they should be.

    Parameters
    ----------
    staging
        Folder of the build.

    Returns
    -------
    SendBook
        What an append goes on from, where all slices are decided.
    """
    return _send_book(staging, _arrival_counts(staging, _ALL))


def sends_before(staging: Path, number: int) -> SendBook:
    """Return the sends that are open before a slice.

    Parameters
    ----------
    staging
        Folder of the build.
    number
        Number of a slice.

    Returns
    -------
    SendBook
        What an append goes on from that scans this slice again: sends of the slices before it that these have not read,
        and their reads of later sends.
    """
    before = pl.col("slice") < number
    sends = _arrival_counts(staging, before)
    later_sends = sends.filter(pl.col("slice") >= number)
    early_readers = _by_send(stitched(staging).filter(before).join(later_sends, on="id", how="semi"))
    return _send_book(staging, sends.filter(pl.col("slice") < number), before, early_readers)


def _arrival_counts(staging: Path, reads: pl.Expr) -> pl.LazyFrame:
    """Return all sends that slices left over, and how often some reads of other slices found them."""
    arrived = stitched(staging).filter(reads).group_by("id").agg(pl.len().cast(pl.Int64).alias("arrived"))
    return (
        _rows(staging, "sends", SENDS)
        .join(arrived, on="id", how="left")
        .with_columns(pl.col("arrived").fill_null(0))
        .with_columns(missing=pl.col("missing") - pl.col("arrived"))
    )


def _send_book(
    staging: Path, sends: pl.LazyFrame, reads: pl.Expr = _ALL, early: Mapping[int, set[int]] | None = None
) -> SendBook:
    unread = sends.filter(pl.col("missing") != 0).sort("slice", "id").collect()
    reads_of_sends = stitched(staging).filter(reads).select("id", "worker")
    read = pl.concat([_rows(staging, "readers", READERS), reads_of_sends]).join(unread.lazy(), on="id", how="semi")
    return SendBook({name: unread[name].to_numpy() for name in SENDS}, _by_send(read), early)


def _by_send(reads: pl.LazyFrame) -> dict[int, set[int]]:
    """Return who read each send."""
    return {
        vertex: set(workers) for vertex, workers in reads.group_by("id").agg(pl.col("worker")).collect().iter_rows()
    }
