"""What a user needs: open a store, ask for windows, and get tables, paths and graphs.

Examples
--------
>>> import pag_graph
>>> pag = pag_graph.open("runs/skewed")  # doctest: +SKIP
>>> print(pag.explain())  # doctest: +SKIP
>>> pag.critical_path(epoch=5).by_type  # doctest: +SKIP
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from pag_graph.analyses.critical_path import CriticalPath, critical_path
from pag_graph.analyses.explain import Explanation, explain
from pag_graph.analyses.k_hops import KHopsParameters, k_hops
from pag_graph.analyses.traffic import traffic
from pag_graph.analyses.waits import waits
from pag_graph.errors import InvalidParameterError, SinkError
from pag_graph.model.enums import EpochRole, RuleSet
from pag_graph.pag.build import BuildReport, silent
from pag_graph.pag.build import build as _build
from pag_graph.pag.snapshot import Run, Snapshot, Window
from pag_graph.sources import convert

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence

    import polars as pl
    from pyspark.sql import DataFrame, SparkSession

    from pag_graph.pag.engine import Engine
    from pag_graph.rules.timely import TimelyParameters
    from pag_graph.store.delta import Mode

__all__ = [
    "ANALYSES",
    "BuildReport",
    "CriticalPath",
    "EpochRole",
    "Explanation",
    "Pag",
    "RuleSet",
    "Snapshot",
    "Window",
    "analyse",
    "build",
    "convert",
    "open",
]


def make_engine(name: str, spark: SparkSession | None = None) -> Engine:
    """Return the engine called ``spark`` or ``local``."""
    if name == "local":
        from pag_graph.engines.local import LocalEngine

        return LocalEngine()
    from pag_graph.engines.spark import SparkEngine

    return SparkEngine(spark)


def build(
    trace: str | os.PathLike[str],
    store: str | os.PathLike[str],
    *,
    rules: RuleSet | str = RuleSet.TIMELY,
    parameters: TimelyParameters | None = None,
    engine: Engine | str = "spark",
    mode: Mode = "error",
    slice_events: int | None = None,
    progress: Callable[[str, int, int], None] = silent,
) -> BuildReport:
    """Build the program activity graph of a trace and commit it to a store.

    Parameters
    ----------
    trace, store
        Directories; the store is made.
    rules, parameters
        Rule set and its parameters.
    engine
        ``spark``, ``local``, or an engine of one's own; the tables are the same.
    mode
        What to do with a store that exists: ``error``, ``append`` or ``replace``.
    slice_events
        About how many events a task works on; the result does not depend on it.
    progress
        Called with (label, done, all).

    Returns
    -------
    BuildReport
        What was committed, and what was found.
    """
    chosen = make_engine(engine) if isinstance(engine, str) else engine
    return _build(
        Path(trace),
        Path(store),
        engine=chosen,
        rules=RuleSet(rules),
        parameters=parameters,
        mode=mode,
        slice_events=slice_events,
        progress=progress,
    )


def open(store: str | os.PathLike[str]) -> Pag:  # noqa: A001  (pag_graph.open reads as it should)
    """Open a committed store."""
    return Pag(Path(store))


class Pag:
    """A committed program activity graph.

    Parameters
    ----------
    store
        Directory of the store.
    """

    def __init__(self, store: Path) -> None:
        self.run = Run(store)

    @property
    def epochs(self) -> pl.DataFrame:
        """One row per startup, round and shutdown (`PAG_EPOCHS`)."""
        return self.run.epochs

    def vertices(self) -> pl.LazyFrame:
        """Return all vertices of the run (`PAG_VERTICES`)."""
        return self.run.scan("vertices")

    def edges(self) -> pl.LazyFrame:
        """Return all edges of the run (`PAG_EDGES`)."""
        return self.run.scan("edges")

    def findings(self) -> pl.DataFrame:
        """Return what is odd about the trace (`PAG_FINDINGS`)."""
        return self.run.scan("findings").collect()

    def snapshot(
        self, *, epoch: int | None = None, role: EpochRole | None = None, between: tuple[int, int] | None = None
    ) -> Snapshot:
        """Return the graph of one window: an epoch's round, a role, a free window; else of the slowest round."""
        if epoch is None and role is None and between is None:
            return self.run.snapshot(self.run.slowest())
        return self.run.snapshot(self.run.window(epoch=epoch, role=role, between=between))

    def critical_path(self, **window: Any) -> CriticalPath:
        """Return the critical path of a window (see `snapshot` and `pag_graph.analyses.critical_path`)."""
        return critical_path(self.snapshot(**window))

    def k_hops(self, parameters: KHopsParameters | None = None, **window: Any) -> pa.Table:
        """Return what happened within k hops before the ends of waits (see `pag_graph.analyses.k_hops`)."""
        return k_hops(self.snapshot(**window), parameters)

    def waits(self, **window: Any) -> pa.Table:
        """Return who waited for whom (see `pag_graph.analyses.waits`)."""
        return waits(self.snapshot(**window))

    def traffic(self, **window: Any) -> pa.Table:
        """Return who sent how much to whom (see `pag_graph.analyses.traffic`)."""
        return traffic(self.snapshot(**window))

    def explain(self, **window: Any) -> Explanation:
        """Say in plain words why a window took as long as it did (see `pag_graph.analyses.explain`)."""
        return explain(self.snapshot(**window))

    def critical_paths(self, engine: Engine | str = "local") -> list[CriticalPath]:
        """Return the critical paths of all windows in time order; each is a task of its own on the engine."""
        chosen = make_engine(engine) if isinstance(engine, str) else engine
        return chosen.map(
            partial(_critical_path_of, self.run.info.path),
            self.run.windows(),
            label="critical path",
            progress=silent,
        )

    def spark_vertices(self, spark: SparkSession, epochs: Sequence[int] | None = None) -> DataFrame:
        """Return vertices as a Spark DataFrame in GraphFrames' shape (column ``id``)."""
        from pag_graph.sinks.graphframes import vertices

        return vertices(self.run, spark, epochs)

    def spark_edges(self, spark: SparkSession, epochs: Sequence[int] | None = None) -> DataFrame:
        """Return edges as a Spark DataFrame in GraphFrames' shape (columns ``src`` and ``dst``)."""
        from pag_graph.sinks.graphframes import edges

        return edges(self.run, spark, epochs)

    def graphframe(self, spark: SparkSession, epochs: Sequence[int] | None = None) -> Any:
        """Return the graph as GraphFrames' own `GraphFrame`.

        Parameters
        ----------
        spark
            A session with GraphFrames' jar; see `pag_graph.engines.session.spark_session`.
        epochs
            Epochs whose events to take; all where absent.

        Returns
        -------
        graphframes.GraphFrame
            Vertices as `PAG_VERTICES`, edges as `PAG_EDGES`.

        Raises
        ------
        MissingExtraError
            If GraphFrames' Python package or its jar is absent; names the coordinate.
        """
        from pag_graph.sinks.graphframes import graphframe

        return graphframe(self.run, spark, epochs)


def _steps(snapshot: Snapshot, k: int) -> pa.Table:
    del k
    return critical_path(snapshot).steps


def _hops(snapshot: Snapshot, k: int) -> pa.Table:
    return k_hops(snapshot, KHopsParameters(k=k))


def _waits(snapshot: Snapshot, k: int) -> pa.Table:
    del k
    return waits(snapshot)


def _traffic(snapshot: Snapshot, k: int) -> pa.Table:
    del k
    return traffic(snapshot)


ANALYSES: dict[str, Callable[[Snapshot, int], pa.Table]] = {
    "critical-path": _steps,
    "k-hops": _hops,
    "waits": _waits,
    "traffic": _traffic,
}
"""Analyses that give one table per window, by the name that jobs use."""


def analyse(
    store: str | os.PathLike[str],
    output: str | os.PathLike[str],
    analysis: str,
    *,
    k: int = 10,
    engine: Engine | str = "spark",
    progress: Callable[[str, int, int], None] = silent,
) -> dict[str, Any]:
    """Run one analysis over all windows of a store and write its rows as Parquet.

    Parameters
    ----------
    store, output
        Directories; one file per window is written to `output`, which must be new or empty.
    analysis
        Name out of `ANALYSES`.
    k
        Number of hops, for ``k-hops``.
    engine
        ``spark``, ``local``, or an engine of one's own; each window is a task.
    progress
        Called with (label, done, all).

    Returns
    -------
    dict
        Counts of windows and rows.

    Raises
    ------
    InvalidParameterError
        If there is no such analysis.
    SinkError
        If `output` holds something.
    """
    if analysis not in ANALYSES:
        message = f"There is no analysis {analysis!r}; there are {', '.join(ANALYSES)}."
        raise InvalidParameterError(message)
    target = Path(output).absolute()
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        message = f"{target} exists and is not empty."
        raise SinkError(message, "Choose a new place for the results.", {"path": str(target)})
    target.mkdir(parents=True, exist_ok=True)
    run = Run(Path(store).absolute())
    chosen = make_engine(engine) if isinstance(engine, str) else engine
    rows = chosen.map(
        partial(_analyse_window, run.info.path, target, analysis, k), run.windows(), label=analysis, progress=progress
    )
    return {"analysis": analysis, "run_id": run.info.run["run_id"], "windows": len(rows), "rows": sum(rows)}


def _analyse_window(store: Path, target: Path, analysis: str, k: int, window: Window) -> int:
    table = ANALYSES[analysis](Run(store).snapshot(window), k)
    epoch = pa.array([window.epoch] * table.num_rows, pa.int64())
    table = table.append_column(pa.field("epoch", pa.int64(), nullable=False), epoch)
    # A task that is run again overwrites its own file; one that is killed leaves nothing that readers take for data.
    partial_file = target / f"_epoch-{window.epoch:09}.tmp"
    pq.write_table(table, partial_file, compression="zstd")
    partial_file.rename(target / f"epoch-{window.epoch:09}.parquet")
    return int(table.num_rows)


def _critical_path_of(store: Path, window: Window) -> CriticalPath:
    run = Run(store)
    return critical_path(run.snapshot(window))
