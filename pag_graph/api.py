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
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from pag_graph.analyses import ANALYSES, Analysis, Scope, find_analysis, table_of
from pag_graph.analyses.critical_path import CriticalPath, critical_path
from pag_graph.analyses.explain import Explanation, explain
from pag_graph.errors import InvalidParameterError, SinkError
from pag_graph.model.enums import EpochRole, RuleSet
from pag_graph.pag.build import BuildReport, silent
from pag_graph.pag.build import build as _build
from pag_graph.pag.snapshot import Run, Snapshot, Window
from pag_graph.sources import convert

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping, Sequence

    import polars as pl
    from pyspark.sql import DataFrame, SparkSession

    from pag_graph.analyses import Result
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

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Callable[..., Any]:
            """Every analysis is a method; `_add_methods` makes them."""

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

    def analyse(
        self,
        name: str,
        parameters: Any = None,
        *,
        against: Pag | None = None,
        engine: Engine | str = "local",
        progress: Callable[[str, int, int], None] = silent,
        **options: Any,
    ) -> pa.Table | Result:
        """Run an analysis; every analysis is also a method of its own name.

        Parameters
        ----------
        name
            Name out of `ANALYSES`.
        parameters
            The analysis' parameters dataclass; or give its fields by name among the options.
        against
            For a comparison: the other run, if it is not this one.
        engine
            Where the rounds are looked at, for an analysis of the whole run.
        progress
            Called with (label, done, all), for an analysis of the whole run.
        options
            ``epoch``, ``role`` or ``between`` choose the window, as for `snapshot`; with the prefix ``against_`` the
            window to compare with. All others are fields of the parameters.

        Returns
        -------
        pa.Table or Result
            Rows of the analysis' schema, or a result that has them as `table`.

        Raises
        ------
        InvalidParameterError
            If there is no such analysis or parameter, or the analysis looks at no single window and one was given.
        """
        analysis = find_analysis(name)
        analysis.check_rules(self.run.rules)
        window: dict[str, Any] = {key: options.pop(key) for key in ("epoch", "role", "between") if key in options}
        other: dict[str, Any] = {key: options.pop(f"against_{key}", None) for key in ("epoch", "role", "between")}
        if options and parameters is not None:
            message = f"Give {', '.join(options)} as fields of the parameters, or give no parameters."
            raise InvalidParameterError(message)
        if parameters is None:
            parameters = analysis.make_parameters(options)
        if analysis.scope is Scope.WINDOW:
            return analysis(self.snapshot(**window), parameters=parameters)
        if analysis.scope is Scope.PAIR:
            before, after = self._pair(window, other, against)
            return analysis(before, after, parameters=parameters)
        if any(value is not None for value in window.values()):
            message = f"{analysis.name} looks at all rounds of a run, not at one window."
            raise InvalidParameterError(message)
        if not analysis.part_name:
            return analysis(self.run, parameters=parameters)
        if engine == "local":
            # In this process the store is open already.
            task = partial(_part_of, self.run, analysis.name, parameters)
        else:
            task = partial(_part, self.run.info.path, analysis.name, parameters)
        chosen = make_engine(engine) if isinstance(engine, str) else engine
        parts = chosen.map(task, self.rounds(), label=analysis.name, progress=progress)
        return analysis(self.run, parameters=parameters, parts=pa.concat_tables(parts))

    def _pair(
        self, window: dict[str, Any], other: dict[str, Any], against: Pag | None
    ) -> tuple[list[Snapshot], list[Snapshot]]:
        """Choose what to compare: with nothing given all rounds of two runs, or a run's slowest with its typical."""
        chosen = any(value is not None for value in window.values())
        chosen_other = any(value is not None for value in other.values())
        base = against or self
        if against is not None and not chosen and not chosen_other:
            return [base.run.snapshot(w) for w in base.rounds()], [self.run.snapshot(w) for w in self.rounds()]
        after = [self.snapshot(**window)]
        if chosen_other:
            return [base.snapshot(**other)], after
        if against is not None:
            return [base.snapshot(**window)], after
        rounds = sorted(self.rounds(), key=lambda w: (w.span_ns, w.start_ns))
        return [self.run.snapshot(rounds[(len(rounds) - 1) // 2])], after

    def rounds(self) -> list[Window]:
        """Return the windows of all rounds in time order; startup and shutdown only where the run has no round."""
        windows = self.run.windows()
        return [window for window in windows if window.role is EpochRole.ROUND] or windows

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


def _add_methods() -> None:
    """Give `Pag` a method for every analysis that has none of its own."""
    for analysis in ANALYSES:
        if not hasattr(Pag, analysis.method):
            setattr(Pag, analysis.method, _method(analysis))


def _method(analysis: Analysis) -> Callable[..., pa.Table | Result]:
    def method(self: Pag, parameters: Any = None, **options: Any) -> pa.Table | Result:
        return self.analyse(analysis.name, parameters, **options)

    method.__name__, method.__qualname__ = analysis.method, f"Pag.{analysis.method}"
    method.__doc__ = (
        f"{analysis.help}\n\nSee `Pag.analyse` for the choice of windows, and docs/analyses.md for the rows."
    )
    return method


_add_methods()


def _part(store: Path, name: str, parameters: Any, window: Window) -> pa.Table:
    return _part_of(Run(store), name, parameters, window)


def _part_of(run: Run, name: str, parameters: Any, window: Window) -> pa.Table:
    """Look at one round, for an analysis of the whole run; rows get the round's `epoch`."""
    analysis = find_analysis(name)
    snapshot = run.snapshot(window)
    part = analysis.part(snapshot) if analysis.parameters is None else analysis.part(snapshot, parameters)
    return _with_epoch(part, window)


def _with_epoch(table: pa.Table, window: Window) -> pa.Table:
    if "epoch" in table.column_names:
        return table
    epoch = pa.array([window.epoch] * table.num_rows, pa.int64())
    return table.append_column(pa.field("epoch", pa.int64(), nullable=False), epoch)


def analyse(
    store: str | os.PathLike[str],
    output: str | os.PathLike[str],
    analysis: str,
    *,
    parameters: Mapping[str, Any] | None = None,
    against: str | os.PathLike[str] | None = None,
    engine: Engine | str = "spark",
    progress: Callable[[str, int, int], None] = silent,
) -> dict[str, Any]:
    """Run one analysis over all windows of a store and write its rows as Parquet.

    Parameters
    ----------
    store, output
        Directories; `output` must be new or empty. One file per window is written to it, ``epoch-*.parquet``, whose
        rows have a column `epoch`; an analysis of the whole run writes ``run.parquet``.
    analysis
        Name out of `ANALYSES`.
    parameters
        Fields of its parameters; defaults where absent.
    against
        For a comparison: another store, whose windows of the same epochs are compared with. Without it each window
        is compared with the one before.
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
        If there is no such analysis or parameter.
    SinkError
        If `output` holds something.
    """
    definition = find_analysis(analysis)
    made = definition.make_parameters(parameters)
    if against is not None and definition.scope is not Scope.PAIR:
        message = f"{definition.name} compares nothing, so there is no use for another store."
        raise InvalidParameterError(message)
    pag = Pag(Path(store).absolute())
    definition.check_rules(pag.run.rules)
    target = Path(output).absolute()
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        message = f"{target} exists and is not empty."
        raise SinkError(message, "Choose a new place for the results.", {"path": str(target)})
    target.mkdir(parents=True, exist_ok=True)
    chosen = make_engine(engine) if isinstance(engine, str) else engine
    path, windows = pag.run.info.path, pag.run.windows()
    if definition.scope is Scope.RUN:
        table = table_of(pag.analyse(definition.name, made, engine=chosen, progress=progress))
        rows = [_write(table, target, "run")]
        windows = pag.rounds()
    elif definition.scope is Scope.WINDOW:
        task = partial(_analyse_window, path, target, definition.name, made)
        rows = chosen.map(task, windows, label=definition.name, progress=progress)
    else:
        pairs = _pairs(pag, Pag(Path(against).absolute()) if against is not None else None)
        base = path if against is None else Path(against).absolute()
        compare = partial(_analyse_pair, base, path, target, definition.name, made)
        rows = chosen.map(compare, pairs, label=definition.name, progress=progress)
        windows = [after for _, after in pairs]
    return {
        "analysis": definition.name,
        "run_id": pag.run.info.run["run_id"],
        "windows": len(windows),
        "rows": sum(rows),
    }


def _pairs(pag: Pag, against: Pag | None) -> list[tuple[Window, Window]]:
    if against is None:
        return list(pairwise(pag.run.windows()))
    others = {window.epoch: window for window in against.run.windows()}
    return [(others[window.epoch], window) for window in pag.run.windows() if window.epoch in others]


def _analyse_window(store: Path, target: Path, name: str, parameters: Any, window: Window) -> int:
    table = table_of(find_analysis(name)(Run(store).snapshot(window), parameters=parameters))
    return _write(_with_epoch(table, window), target, f"epoch-{window.epoch:09}")


def _analyse_pair(
    base: Path, store: Path, target: Path, name: str, parameters: Any, pair: tuple[Window, Window]
) -> int:
    before, after = Run(base).snapshot(pair[0]), Run(store).snapshot(pair[1])
    table = table_of(find_analysis(name)(before, after, parameters=parameters))
    return _write(_with_epoch(table, pair[1]), target, f"epoch-{pair[1].epoch:09}")


def _write(table: pa.Table, target: Path, stem: str) -> int:
    # A task that is run again overwrites its own file; one that is killed leaves nothing that readers take for data.
    partial_file = target / f"_{stem}.tmp"
    pq.write_table(table, partial_file, compression="zstd")
    partial_file.rename(target / f"{stem}.parquet")
    return int(table.num_rows)


def _critical_path_of(store: Path, window: Window) -> CriticalPath:
    run = Run(store)
    return critical_path(run.snapshot(window))
