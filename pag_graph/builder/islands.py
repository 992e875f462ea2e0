"""A build by rules to which epochs are islands: any slice of whole epochs is built without the others."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pag_graph.builder.made import SliceResult
from pag_graph.builder.plan import check_memory
from pag_graph.builder.scan import read_rows
from pag_graph.errors import StoreError
from pag_graph.kernels import layout
from pag_graph.kernels.epochs import Rows, epochs_of_rows
from pag_graph.model.enums import ActivityType, EpochRole
from pag_graph.model.tables import PAG_EPOCHS
from pag_graph.rules.registry import island_rules
from pag_graph.rules.rows import EDGE_CODES
from pag_graph.runtime.threads import each
from pag_graph.store.in_place import refusals

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pag_graph.builder.engine import Engine
    from pag_graph.builder.fold import Progress
    from pag_graph.builder.plan import RunPlan, Slice
    from pag_graph.builder.sink import Sink
    from pag_graph.rules.graph_columns import GraphColumns
    from pag_graph.rules.rows import WorkerRows


class Islands(NamedTuple):
    """What became of all slices."""

    result: SliceResult
    """Files and counts."""
    epochs: pa.Table
    """Rows of `PAG_EPOCHS`."""
    last_epoch: int
    """The last epoch of the run."""
    findings: pa.Table
    """Those of the run as a whole, rows of `PAG_FINDINGS`."""


class _Island(NamedTuple):
    result: SliceResult
    epochs: pl.DataFrame
    ends: pa.Table | None
    """Ends of messages of which the slice has not found all others; None where they were written to a file."""


def build_islands(plan: RunPlan, sink: Sink, staging: Path, engine: Engine, progress: Progress) -> Islands:
    """Build all slices of a plan.

    Parameters
    ----------
    plan, sink, engine, progress
        Of the build.
    staging
        A folder to be made.

    Returns
    -------
    Islands
        O(rows).
    """
    if engine.in_process:
        islands = _one_after_the_other(plan, sink, progress)
        ends = [island.ends for island in islands if island.ends is not None]
    else:
        staging.mkdir(parents=True)
        islands = engine.map(
            partial(_build_in_task, plan, sink, staging), plan.slices, label="assemble", progress=progress
        )
        ends = [pq.read_table(file) for file in sorted(staging.glob("ends-*.parquet"))]
    epochs = pl.concat([island.epochs for island in islands]).sort("epoch").to_arrow().cast(PAG_EPOCHS)
    # Whether an end lost its partner or has it in another epoch shows only when all slices are seen.
    all_findings = pa.concat_tables(
        [plan.trace.findings, island_rules(plan.rules).message_findings(pa.concat_tables(ends))]
    )
    slice_sum = SliceResult.sum(island.result for island in islands)
    return Islands(slice_sum, epochs, int(pc.max(epochs["epoch"]).as_py()), all_findings)


def _one_after_the_other(plan: RunPlan, sink: Sink, progress: Progress) -> list[_Island]:
    """Do all slices in this process; while one is made, the next one is read."""
    plan = replace(plan, log=plan.log.forward())
    islands: list[_Island] = []
    progress("assemble", 0, len(plan.slices))
    with ThreadPoolExecutor(1) as ahead:
        reading = ahead.submit(_read, plan, plan.slices[0])
        for number in range(1, len(plan.slices) + 1):
            rows = reading.result()
            if number < len(plan.slices):
                reading = ahead.submit(_read, plan, plan.slices[number])
            islands.append(_make(plan, sink, rows))
            progress("assemble", number, len(plan.slices))
    return islands


def _build_in_task(plan: RunPlan, sink: Sink, staging: Path, part: Slice) -> _Island:
    """Do a slice in a task."""
    island = _make(plan, sink, _read(plan, part))
    file = staging / f"ends-{part.number:06}.parquet"
    with refusals(file, "", StoreError):
        pq.write_table(island.ends, file)
    return island._replace(ends=None)


def _read(plan: RunPlan, part: Slice) -> list[WorkerRows]:
    check_memory(plan, part)
    return each(lambda worker: read_rows(plan, worker, part), sorted(part.rows))


def _make(plan: RunPlan, sink: Sink, rows: Sequence[WorkerRows]) -> _Island:
    graph, ends = island_rules(plan.rules).build_columns(
        rows, workers=len(plan.workers), prepared=plan.trace.meta.prepared, operators=plan.trace.operators
    )
    slice_result = SliceResult.of(graph, sink.write(graph, provisional=False, prints=False))
    return _Island(slice_result, _epochs(rows, graph), ends)


def _epochs(rows: Sequence[WorkerRows], graph: GraphColumns) -> pl.DataFrame:
    """Return one row of `PAG_EPOCHS` per epoch; its window is its latency window on the workers' own clocks."""
    counted = each(
        lambda part: epochs_of_rows(
            Rows(part.epoch, part.t, part.kind, np.zeros(part.rows, np.int8), np.zeros(part.rows, np.bool_)), 0
        ),
        rows,
    )
    epoch, events, entry, exit_ns = np.concatenate([columns[:4] for columns in counted], axis=1)
    epochs, place = np.unique(epoch, return_inverse=True)
    sums = {name: np.zeros(len(epochs), np.int64) for name in ("events", "vertices", "edges", "waiting_ns")}
    np.add.at(sums["events"], place, events)
    for name, table in (("vertices", graph.vertices), ("edges", graph.edges)):
        sums[name][np.searchsorted(epochs, table.epochs.epoch)] = table.epochs.rows
    waits = np.flatnonzero(graph.edges.kind == EDGE_CODES[ActivityType.WAITING])
    # Edges stand epoch by epoch: what each waited is a difference of what all up to it waited.
    waited = np.append(0, np.cumsum(graph.edges.numbers[layout.DURATION, waits]))
    carried = graph.edges.epochs
    upto = waited[np.searchsorted(waits, np.cumsum(carried.rows))]
    sums["waiting_ns"][np.searchsorted(epochs, carried.epoch)] = np.diff(upto, prepend=0)
    first, last = np.full(len(epochs), np.iinfo(np.int64).max), np.full(len(epochs), np.iinfo(np.int64).min)
    np.minimum.at(first, place, entry)
    np.maximum.at(last, place, exit_ns)
    return (
        pl.DataFrame({"epoch": epochs, "entry_ns": first, "exit_ns": last, **sums})
        .with_columns(
            role=pl.lit(str(EpochRole.ROUND)),
            start_ns="entry_ns",
            end_ns="exit_ns",
            end_vertex=pl.lit(None, pl.Int64),
            unknown_ns=pl.lit(0, pl.Int64),
            coverage=pl.lit(1.0),
        )
        .select(PAG_EPOCHS.names)
    )
