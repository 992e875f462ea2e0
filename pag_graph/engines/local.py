"""The engine without Spark: tasks run in this process, one after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import narwhals.stable.v2 as nw
import polars as pl

from pag_graph.builder.leftovers import left_files, write_left
from pag_graph.builder.match import stitch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from pag_graph.builder.engine import Item, Result


class LocalEngine:
    """Runs everything in this process; for small traces, notebooks and tests. Needs no Java."""

    name = "local"
    tasks = 1
    in_process = True

    def map(
        self,
        task: Callable[[Item], Result],
        items: Sequence[Item],
        *,
        label: str,
        progress: Callable[[str, int, int], None],
    ) -> list[Result]:
        """Run a task on every item, in order.

        Parameters
        ----------
        task, items, label, progress
            As for `pag_graph.builder.engine.Engine.map`.

        Returns
        -------
        list
            One result per item.
        """
        results = []
        progress(label, 0, len(items))
        for item in items:
            results.append(task(item))
            progress(label, len(results), len(items))
        return results

    def stitch(self, staging: Path, horizon_ns: int) -> None:
        """Join the leftovers of all slices.

        Parameters
        ----------
        staging, horizon_ns
            As for `pag_graph.builder.engine.Engine.stitch`.

        Raises
        ------
        StoreError
            If the file system refuses.
        """
        stitch_here(staging, horizon_ns)


def stitch_here(staging: Path, horizon_ns: int) -> None:
    """Join the leftovers of all slices in this process.

    Parameters
    ----------
    staging, horizon_ns
        As for `pag_graph.builder.engine.Engine.stitch`.

    Raises
    ------
    StoreError
        If the file system refuses.
    """
    sends, receives, readers = (
        nw.from_native(pl.scan_parquet(files, glob=False, hive_partitioning=False)) if files else None
        for files in (left_files(staging, name) for name in ("sends", "receives", "readers"))
    )
    if sends is not None and receives is not None:
        joined = stitch(sends, receives, readers, horizon_ns)
        frame = joined.to_native().collect()
        if frame.height:
            write_left(frame, staging / "stitched" / "part-0.parquet")
