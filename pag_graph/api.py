"""What a user needs: open a store, ask for windows, and get tables, paths and graphs.

Examples
--------
>>> import pag_graph
>>> pag = pag_graph.open("runs/skewed")  # doctest: +SKIP
>>> print(pag.why())  # doctest: +SKIP
>>> pag.critical_path(epoch=5).by_type  # doctest: +SKIP
"""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from pag_graph.analyses import ANALYSES, Analysis, Scope, all_analyses, find_analysis, table_of
from pag_graph.analyses.expressions import with_epoch
from pag_graph.builder.engine import silent
from pag_graph.errors import InvalidParameterError, SinkError
from pag_graph.graph.snapshot import Run, Snapshot, Window, whole_number
from pag_graph.methods import AnalysisMethods
from pag_graph.model.enums import EpochRole, RuleSet
from pag_graph.model.tables import STORE_TABLES
from pag_graph.sources import convert
from pag_graph.store.in_place import check_output, refusals, whole_file, write_whole

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping, Sequence

    import polars as pl
    from pyspark.sql import DataFrame, SparkSession

    from pag_graph.analyses import Result
    from pag_graph.analyses.critical_path import CriticalPath
    from pag_graph.analyses.frames import Frames
    from pag_graph.builder.build import BuildReport
    from pag_graph.builder.engine import Engine
    from pag_graph.engines.motif import SparkMotifQuery
    from pag_graph.motif.paths import KHopPaths
    from pag_graph.motif.query import MotifQuery
    from pag_graph.rules.rows import RuleParameters
    from pag_graph.sinks.export import Exported
    from pag_graph.sinks.graphframes import Detail
    from pag_graph.store.delta import Mode

__all__ = [
    "ANALYSES",
    "EpochRole",
    "Pag",
    "RuleSet",
    "Snapshot",
    "Window",
    "all_analyses",
    "analyse",
    "build",
    "convert",
    "open",
]


_ROW_GROUP = 64 * 1024
_LEAST_WIDTH = 300
_CHOICES = ("epoch", "role", "between", "latency")
"""Arguments that choose a window."""

_OF_WINDOW = {"window", "epoch", "role", "start_ns", "end_ns"}


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
    rules: RuleSet | str | None = None,
    parameters: RuleParameters | None = None,
    force_rules: bool = False,
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
        Rule set, the one that the trace asks for where absent, and its parameters.
    force_rules
        Build by `rules` even if the trace contradicts them: if it states its waits and they infer them, or the other
        way round. Nobody should trust the answers; the store says so with a finding.
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
    # Here and below: what needs compiled kernels is loaded by whom it serves, so that opening a store takes no second.
    from pag_graph.builder.build import build as run_build

    chosen = make_engine(engine) if isinstance(engine, str) else engine
    # Executors have working directories of their own.
    return run_build(
        Path(trace).absolute(),
        Path(store).absolute(),
        engine=chosen,
        rules=None if rules is None else RuleSet(rules),
        parameters=parameters,
        force_rules=force_rules,
        mode=mode,
        slice_events=slice_events,
        progress=progress,
    )


def open(store: str | os.PathLike[str]) -> Pag:  # noqa: A001  (pag_graph.open reads as it should)
    """Open a committed store."""
    return Pag(Path(store))


class Pag(AnalysisMethods):
    """A committed program activity graph.

    Parameters
    ----------
    store
        Directory of the store.
    """

    def __init__(self, store: Path) -> None:
        # Executors have working directories of their own.
        self.run = Run(Path(store).absolute())

    @property
    def epochs(self) -> pl.DataFrame:
        """One row per startup, round and shutdown (`PAG_EPOCHS`)."""
        return self.run.epochs

    def _ask(self, name: str, given: dict[str, Any]) -> Any:
        """Run an analysis with what its method was called with; what is the default counts as not given."""
        defaults = {item.name: item.default for item in find_analysis(name).parameter_list}
        options = {key: value for key, value in given.items() if key not in {"self", "parameters", "unknown"}}
        options = {key: value for key, value in options.items() if key not in defaults or value != defaults[key]}
        if options.get("progress", silent) is None:
            del options["progress"]
        return self.analyse(name, given["parameters"], **options, **given["unknown"])

    def scan(self, table: str) -> pl.LazyFrame:
        """Return any table of the run, lazily: ``scan("epochs")`` as well as ``scan("edges")``.

        Parameters
        ----------
        table
            ``vertices``, ``edges``, ``epochs``, ``operators``, ``channels``, ``workers`` or ``findings``.

        Returns
        -------
        pl.LazyFrame
            Columns as in `pag_graph.model.tables`; rows in no order.

        Raises
        ------
        InvalidParameterError
            If there is no such table.
        """
        if table not in STORE_TABLES:
            message = f"There is no table {table!r}; there are {', '.join(STORE_TABLES)}."
            raise InvalidParameterError(message)
        return self.run.scan(table)

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
        self,
        *,
        epoch: int | None = None,
        role: EpochRole | Literal["startup", "round", "shutdown"] | None = None,
        between: tuple[int, int] | None = None,
        latency: int | None = None,
    ) -> Snapshot:
        """Return the graph of one window (see `Run.window`); of the slowest round where none is chosen."""
        return self.run.snapshot(self._window(epoch=epoch, role=role, between=between, latency=latency))

    def _window(self, **choice: Any) -> Window:
        return self.run.window(**choice) if any(v is not None for v in choice.values()) else self.run.slowest()

    def _prepared(
        self,
        name: str,
        parameters: Any,
        options: Mapping[str, Any],
        *,
        windows: str = "",
        spark: SparkSession | None = None,
    ) -> tuple[Analysis, Any]:
        """Find an analysis that can look at this run, and make its parameters; `windows` are what it is to look at."""
        analysis = find_analysis(name)
        analysis.check_rules(self.run.rules)
        if spark is not None:
            analysis.check_across()
        if windows and analysis.scope is not Scope.WINDOW:
            message = f"{analysis.name} does not look at one window, so it cannot look at {windows}."
            raise InvalidParameterError(message)
        if options and parameters is not None:
            message = f"Give {', '.join(options)} as fields of the parameters, or give no parameters."
            raise InvalidParameterError(message)
        return analysis, analysis.make_parameters(options) if parameters is None else parameters

    def critical_path(
        self,
        *,
        epoch: int | None = None,
        role: EpochRole | Literal["startup", "round", "shutdown"] | None = None,
        between: tuple[int, int] | None = None,
        latency: int | None = None,
        spark: SparkSession | None = None,
    ) -> CriticalPath:
        """Return the critical path of a window (see `snapshot`, `analyse` and `pag_graph.analyses.critical_path`)."""
        from pag_graph.analyses.critical_path import critical_path

        window = self._window(epoch=epoch, role=role, between=between, latency=latency)
        return critical_path(_subject(self.run, window, spark))

    def analyse(
        self,
        name: str,
        parameters: Any = None,
        *,
        against: Pag | None = None,
        engine: Engine | str = "local",
        spark: SparkSession | None = None,
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
            Where the rounds are looked at, for an analysis of the whole run: each round is one task.
        spark
            Spread every window over this session's executors, for windows that are too large for one task. The answer
            is the same.
        progress
            Called with (label, done, all), for an analysis of the whole run.
        options
            ``epoch``, ``role``, ``between`` or ``latency`` choose the window, as for `snapshot`; with the prefix
            ``against_`` the window to compare with. All others are fields of the parameters.

        Returns
        -------
        pa.Table or Result
            Rows of the analysis' schema, or a result that has them as `table`.

        Raises
        ------
        InvalidParameterError
            If there is no such analysis or parameter, or the analysis looks at no single window and one was given.
        UnsupportedPlanError
            If the run's rule set gives the analysis no meaning, or its windows cannot be spread.
        """
        window: dict[str, Any] = {key: options.pop(key) for key in _CHOICES if key in options}
        other: dict[str, Any] = {key: options.pop(f"against_{key}", None) for key in _CHOICES}
        analysis, parameters = self._prepared(name, parameters, options, spark=spark)
        if analysis.scope is Scope.WINDOW:
            chosen = self._window(**window)
            return analysis(_subject(self.run, chosen, spark), parameters=parameters)
        if analysis.scope is Scope.PAIR:
            before, after = self._pair(window, other, against)
            return analysis(before, after, parameters=parameters)
        if any(value is not None for value in window.values()):
            message = f"{analysis.name} looks at all rounds of a run, not at one window."
            raise InvalidParameterError(message)
        if not analysis.part_name:
            return analysis(self.run, parameters=parameters)
        rounds = analysis.chosen(self.run, self.rounds(), parameters)
        parts = self._over(analysis, rounds, parameters, engine=engine, spark=spark, progress=progress)
        return analysis(self.run, parameters=parameters, parts=parts)

    def each(
        self,
        name: str,
        parameters: Any = None,
        *,
        engine: Engine | str = "local",
        spark: SparkSession | None = None,
        progress: Callable[[str, int, int], None] = silent,
        **options: Any,
    ) -> pa.Table:
        """Run an analysis on every round of the run, startup and shutdown as well.

        Parameters
        ----------
        name
            Name out of `ANALYSES`, of an analysis that looks at one window.
        parameters
            The analysis' parameters dataclass; or give its fields by name among the options.
        engine
            Where the windows are looked at: some windows that follow each other are one task.
        spark
            Spread every window over this session's executors, as for `analyse`.
        progress
            Called with (label, done, all).
        options
            Fields of the parameters.

        Returns
        -------
        pa.Table
            The rows of all windows in time order, each with its `epoch`. Much faster than one window after the other:
            the graph is read in stretches of many windows.

        Raises
        ------
        InvalidParameterError
            If there is no such analysis or parameter, or the analysis looks at no single window.

        Examples
        --------
        >>> pag_graph.open("run.pag").each("k-hops", k=10)  # doctest: +SKIP
        """
        analysis, made = self._prepared(name, parameters, options, windows="each", spark=spark)
        return self._over(analysis, self.run.windows(), made, engine=engine, spark=spark, progress=progress)

    def _over(
        self,
        analysis: Analysis,
        windows: Sequence[Window],
        parameters: Any,
        *,
        engine: Engine | str,
        spark: SparkSession | None,
        progress: Callable[[str, int, int], None],
    ) -> pa.Table:
        if spark is not None:
            tables = []
            for place, window in enumerate(windows):
                progress(analysis.name, place, len(windows))
                tables.append(_across(self.run, spark, analysis, parameters, window))
            progress(analysis.name, len(windows), len(windows))
            return pa.concat_tables(tables, promote_options="permissive")
        # In this process the store is open already.
        run = self.run if engine == "local" else self.run.info.path
        chosen = make_engine(engine) if isinstance(engine, str) else engine
        task = partial(_stretch, run, analysis.name, parameters)
        # What lies between chosen rounds is not to be read.
        stretches = (
            [[w] for w in windows] if analysis.choose_name else list(self.run.stretches(windows, tasks=chosen.tasks))
        )
        parts = chosen.map(task, stretches, label=analysis.name, progress=progress)
        return pa.concat_tables(parts, promote_options="permissive")

    def series(
        self,
        name: str,
        parameters: Any = None,
        *,
        every_ns: int,
        step_ns: int | None = None,
        between: tuple[int, int] | None = None,
        **options: Any,
    ) -> pa.Table:
        """Run an analysis on windows of one length, side by side or sliding.

        Parameters
        ----------
        name
            Name out of `ANALYSES`, of an analysis that looks at one window.
        parameters
            The analysis' parameters dataclass; or give its fields by name among the options.
        every_ns, step_ns, between
            The windows, as for `Run.series`.
        options
            Fields of the parameters.

        Returns
        -------
        pa.Table
            The rows of all windows in time order, each after its ``window`` (counted from 0), ``from_ns`` and
            ``to_ns``. Of an analysis that returns more than a table one row per window: what its summary says.

        Raises
        ------
        InvalidParameterError
            If there is no such analysis, parameter or window, or the analysis looks at no single window.

        Examples
        --------
        >>> pag_graph.open("run.pag").series("profile", every_ns=10_000_000)  # doctest: +SKIP
        """
        analysis, made = self._prepared(name, parameters, options, windows="a series of them")
        windows = self.run.series(every_ns, step_ns=step_ns, between=between)
        parts = []
        for number, snapshot in enumerate(self.run.snapshots(windows)):
            result = analysis(snapshot, parameters=made)
            rows = result if isinstance(result, pa.Table) else _summed_up(result)
            place = {"window": number, "from_ns": snapshot.window.start_ns, "to_ns": snapshot.window.end_ns}
            for at, (column, value) in enumerate(place.items()):
                rows = rows.add_column(at, column, pa.repeat(pa.scalar(value, pa.int64()), rows.num_rows))
            parts.append(rows)
        # A summary's columns are null where a window has nothing to say.
        return pa.concat_tables(parts, promote_options="permissive")

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

    def export(
        self,
        target: str | os.PathLike[str],
        to: str | None = None,
        *,
        path_only: bool = False,
        replace: bool = False,
        progress: Callable[[str, int, int], None] = silent,
        **window: Any,
    ) -> Exported:
        """Write the run, or one window of it, for another program (see `pag_graph.sinks.export.export`).

        Without `to` the name of `target` says the format: ``.json`` for Perfetto, ``.graphml``, ``.svg``, or none for a
        folder of CSV.
        """
        from pag_graph.sinks.export import export

        chosen = self.run.window(**window) if window else None
        return export(self.run, target, to, window=chosen, path_only=path_only, replace=replace, progress=progress)

    def draw(
        self,
        picture: str | os.PathLike[str],
        *,
        epoch: int | None = None,
        role: EpochRole | Literal["startup", "round", "shutdown"] | None = None,
        between: tuple[int, int] | None = None,
        latency: int | None = None,
        width: int = 1100,
    ) -> Path:
        """Draw a window as an SVG: who did what when, who sent to whom, and the critical path.

        Parameters
        ----------
        picture
            File to write.
        epoch, role, between, latency
            See `snapshot`.
        width
            Width in pixels, at least 300.

        Returns
        -------
        Path
            The file.

        Raises
        ------
        InvalidParameterError
            If there is no such window, the width is too small, or the file's name ends in something else than ``.svg``.
        SinkError
            If the file cannot be written.

        Examples
        --------
        >>> pag_graph.open("run.pag").draw("epoch4.svg", epoch=4)  # doctest: +SKIP
        """
        from pag_graph.sinks.timeline import timeline

        if whole_number(width, "width") < _LEAST_WIDTH:
            message = f"width is {width}, and must be at least {_LEAST_WIDTH}."
            raise InvalidParameterError(message)
        target = Path(picture)
        check_output(target, ".svg")
        drawn = timeline(self.snapshot(epoch=epoch, role=role, between=between, latency=latency), width=width)
        write_whole(target, drawn)
        return target

    def to_networkx(self, *, path_only: bool = False, **window: Any) -> Any:
        """Return the run, or one window of it, as a `networkx.MultiDiGraph`.

        Parameters
        ----------
        path_only
            Only the critical path.
        window
            As for `Run.window`; the whole run where absent.

        Returns
        -------
        networkx.MultiDiGraph
            Nodes are the ids of vertices; attributes are the columns of the tables, and `critical` of edges.

        Raises
        ------
        MissingExtraError
            If networkx is not installed.
        """
        from pag_graph.sinks.export.networkx_graph import networkx_graph
        from pag_graph.sinks.export.pieces import PIECE_EDGES, Content

        chosen = self.run.window(**window) if window else None
        return networkx_graph(
            Content(run=self.run, window=chosen, path_only=path_only, piece_edges=PIECE_EDGES, progress=silent)
        )

    def graphframe(self, spark: SparkSession, epochs: Sequence[int] | None = None, detail: Detail = "full") -> Any:
        """Return the graph as GraphFrames' own `GraphFrame`.

        Parameters
        ----------
        spark
            A session with GraphFrames' jar; see `pag_graph.engines.session.spark_session`.
        epochs
            Epochs whose events to take; all where absent.
        detail
            ``full``, ``waits`` or ``critical``; see `pag_graph.sinks.graphframes.graphframe`.

        Returns
        -------
        graphframes.GraphFrame
            With the detail ``full``, vertices as `PAG_VERTICES` and edges as `PAG_EDGES`.

        Raises
        ------
        MissingExtraError
            If GraphFrames' Python package or its jar is absent; names the coordinate.
        """
        from pag_graph.sinks.graphframes import graphframe

        return graphframe(self.run, spark, epochs, detail)

    def motif(
        self,
        pattern: str,
        where: str | None = None,
        *,
        epochs: Sequence[int] | None = None,
        columns: Sequence[str] | None = None,
        limit: int | None = None,
        parameters: Mapping[str, int | float | str | bool] | None = None,
        distinct: bool = False,
        spark: SparkSession | None = None,
    ) -> MotifQuery | SparkMotifQuery:
        """Look for a motif, with GraphFrames' language and columns and without its jar (see docs/motifs.md).

        Parameters
        ----------
        pattern
            A motif such as ``(a)-[e]->(b); !(b)-[]->(a)``, or the name of a pattern out of
            `pag_graph.motif.patterns.PATTERNS`.
        where
            What must hold of a match, such as ``e.duration_ns > ms(1)``; beside a pattern's own filter.
        epochs
            Epochs that edges must end in; all where absent.
        columns
            ``element.column`` or ``element``; all columns of all named elements where absent.
        limit
            Most rows to return.
        parameters
            Values of ``$name`` in the filter; of a named pattern, those that differ from its defaults.
        distinct
            Whether no two named edges may be the same edge; as in GraphFrames, two names may stand for one.
        spark
            Look for it with Spark instead of Polars.

        Returns
        -------
        MotifQuery or SparkMotifQuery
            `frame()` and `table()` are the answer, `total` counts all matches, `explain()` shows the plan.

        Raises
        ------
        MotifSyntaxError
            If motif or filter cannot be understood; points at the character.
        InvalidParameterError
            If there is no such epoch, column or parameter.
        """
        from pag_graph.motif.patterns import PATTERNS
        from pag_graph.motif.query import MotifQuery, ask
        from pag_graph.motif.shape import PAG_SHAPE
        from pag_graph.motif.store import graph_of_run

        if limit is not None and limit < 1:
            message = f"limit is {limit}, and must be at least 1."
            raise InvalidParameterError(message)
        named = PATTERNS.get(pattern)
        wheres = [text for text in (named.where if named else None, where) if text]
        values = named.values(parameters) if named else dict(parameters or {})
        text = named.motif if named else pattern
        question = ask(text, wheres, PAG_SHAPE, columns=columns, parameters=values, distinct=distinct)
        if spark is None:
            return MotifQuery(question=question, graph=graph_of_run(self.run, epochs), limit=limit)
        from pag_graph.engines.motif import SparkMotifQuery
        from pag_graph.sinks.graphframes import motif_graph

        return SparkMotifQuery(question=question, graph=motif_graph(self.run, spark, epochs), limit=limit)

    def k_hop_paths(
        self,
        k: int = 2,
        *,
        limit: int = 1000,
        through_waits: bool = True,
        spark: SparkSession | None = None,
        **window: Any,
    ) -> KHopPaths:
        """List paths of exactly k hops back from the ends of a window's waits; `k_hops` counts those of any length.

        Parameters
        ----------
        k
            Number of hops, 1 to 8.
        limit
            Most paths to list; the answer says how many there are.
        through_waits
            Follow waits as well; without them hops are causes only.
        spark
            Use Spark instead of this process.
        window
            See `snapshot`.

        Returns
        -------
        KHopPaths
            `paths` has one row per path and hop (`K_HOP_PATHS`), `total` and `cut` say what is not in it.
        """
        from pag_graph.motif.paths import k_hop_paths

        if spark is None:
            return k_hop_paths(self.snapshot(**window), k, limit=limit, through_waits=through_waits)
        from pag_graph.engines.motif import k_hop_paths as on_spark
        from pag_graph.sinks.graphframes import edges_in_window

        chosen = self._window(**window)
        vertices = self.spark_vertices(spark)
        edges = edges_in_window(self.run, spark, chosen)
        return on_spark(vertices, edges, k=k, limit=limit, through_waits=through_waits)


def _add_methods() -> None:
    """Give `Pag` a method for every analysis of another distribution; those of this one are `AnalysisMethods`."""
    for analysis in all_analyses():
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


def _summed_up(result: Result) -> pa.Table:
    """Return one row: the plain values of a summary, but for those that say which window it is."""
    values = {
        name: value
        for name, value in result.summary().items()
        if name not in _OF_WINDOW and (value is None or isinstance(value, bool | int | float | str))
    }
    return pa.table({name: [value] for name, value in values.items()})


def _subject(run: Run, window: Window, spark: SparkSession | None) -> Snapshot | Frames:
    """Return what an analysis looks at: the window's edges in this process, or across partitions."""
    if spark is None:
        return run.snapshot(window)
    from pag_graph.engines.frames import spark_frames

    return spark_frames(run, spark, window)


def _across(run: Run, spark: SparkSession, analysis: Analysis, parameters: Any, window: Window) -> pa.Table:
    """Look at one window across partitions; rows get its `epoch`, where they have none of their own."""
    function = analysis.part if analysis.part_name else analysis.function
    arguments = () if analysis.parameters is None else (parameters,)
    return with_epoch(table_of(function(_subject(run, window, spark), *arguments)), window)


def _stretch(store: Path | Run, name: str, parameters: Any, windows: Sequence[Window]) -> pa.Table:
    """Look at some windows of epochs; rows get the `epoch` of theirs, where they have none of their own."""
    run = Run(store) if isinstance(store, Path) else store
    table = find_analysis(name).over(run, windows, parameters)
    place = table["window"]
    table = table.drop_columns(["window"])
    if "epoch" in table.column_names:
        return table
    epochs = pa.array([window.epoch for window in windows], pa.int64())
    return table.append_column(pa.field("epoch", pa.int64(), nullable=False), epochs.take(place))


def analyse(
    store: str | os.PathLike[str],
    output: str | os.PathLike[str],
    analysis: str,
    *,
    parameters: Mapping[str, Any] | None = None,
    against: str | os.PathLike[str] | None = None,
    engine: Engine | str = "spark",
    across: bool = False,
    progress: Callable[[str, int, int], None] = silent,
) -> dict[str, Any]:
    """Run one analysis over all windows of a store and write its rows as Parquet.

    Parameters
    ----------
    store, output
        Directories; `output` must be new or empty. One file per task is written to it, ``epoch*.parquet``, whose rows
        have a column `epoch`; an analysis of the whole run writes ``run.parquet``.
    analysis
        Name out of `ANALYSES`.
    parameters
        Fields of its parameters; defaults where absent.
    against
        For a comparison: another store, whose windows of the same epochs are compared with. Without it each window
        is compared with the one before.
    engine
        ``spark``, ``local``, or an engine of one's own; some windows that follow each other are one task.
    across
        Instead of that, look at one window after the other, and spread each over all executors of the engine ``spark``:
        for windows that are too large for one task. The rows are the same.
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
    UnsupportedPlanError
        If the run's rule set gives the analysis no meaning, or its windows cannot be spread.
    SinkError
        If `output` holds something.
    """
    definition = find_analysis(analysis)
    if across:
        definition.check_across()
        if engine == "local":
            message = "Windows are spread over Spark's executors, and the engine is local."
            raise InvalidParameterError(message, "analyse(..., engine='spark', across=True)")
    made = definition.make_parameters(parameters)
    if against is not None and definition.scope is not Scope.PAIR:
        message = f"{definition.name} compares nothing, so there is no use for another store."
        raise InvalidParameterError(message)
    pag = Pag(Path(store))
    definition.check_rules(pag.run.rules)
    target = _new_folder(output)
    with refusals(target, "", SinkError):
        target.mkdir(parents=True, exist_ok=True)
    chosen = make_engine(engine) if isinstance(engine, str) else engine
    spark = getattr(chosen, "spark", None) if across else None
    path, windows = pag.run.info.path, pag.run.windows()
    if definition.scope is Scope.RUN:
        table = table_of(pag.analyse(definition.name, made, engine=chosen, spark=spark, progress=progress))
        rows = [_write(table, target, "run")]
        windows = pag.rounds()
    elif spark is not None:
        rows = []
        for place, window in enumerate(windows):
            progress(definition.name, place, len(windows))
            table = _across(pag.run, spark, definition, made, window)
            rows.append(_write(table, target, f"epoch-{window.epoch:09}"))
        progress(definition.name, len(windows), len(windows))
    elif definition.scope is Scope.WINDOW:
        # A task looks at as many windows as are read together.
        task = partial(_analyse_windows, path, target, definition.name, made)
        rows = chosen.map(
            task, list(pag.run.stretches(windows, tasks=chosen.tasks)), label=definition.name, progress=progress
        )
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


def write_motif(
    store: str | os.PathLike[str],
    output: str | os.PathLike[str],
    pattern: str,
    where: str | None = None,
    *,
    epochs: Sequence[int] | None = None,
    parameters: Mapping[str, int | float | str | bool] | None = None,
    distinct: bool = False,
    spark: SparkSession | None = None,
) -> dict[str, Any]:
    """Find a motif with Spark and write its matches as Parquet.

    Parameters
    ----------
    store, output
        Directories; `output` must be new or empty.
    pattern, where, epochs, parameters, distinct
        See `Pag.motif`.
    spark
        Session to use; the active one, or a new one, where absent.

    Returns
    -------
    dict
        The run, the motif, and how many matches were written.

    Raises
    ------
    MotifSyntaxError
        If motif or filter cannot be understood.
    SinkError
        If `output` holds something.
    """
    from pag_graph.engines.frames import parquet
    from pag_graph.engines.session import spark_session

    pag, target = Pag(Path(store)), _new_folder(output)
    # What is wrong with the question is said before Spark starts.
    pag.motif(pattern, where, epochs=epochs, parameters=parameters, distinct=distinct)
    session = spark or spark_session(app="pag_graph motif")
    query = pag.motif(pattern, where, epochs=epochs, parameters=parameters, distinct=distinct, spark=session)
    query.frame().write.mode("append").parquet(str(target))  # type: ignore[union-attr]
    matches = parquet(session.read, [str(target)]).count()
    return {"run_id": pag.run.info.run["run_id"], "motif": str(query.question.motif), "matches": matches}


def _new_folder(output: str | os.PathLike[str]) -> Path:
    """Return where results go, as an absolute path.

    Raises
    ------
    SinkError
        If something is there.
    """
    target = Path(output).absolute()
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        message = f"{target} exists and is not empty."
        raise SinkError(message, "Choose a new place for the results.", {"path": str(target)})
    return target


def _pairs(pag: Pag, against: Pag | None) -> list[tuple[Window, Window]]:
    if against is None:
        return list(pairwise(pag.run.windows()))
    others = {window.epoch: window for window in against.run.windows()}
    return [(others[window.epoch], window) for window in pag.run.windows() if window.epoch in others]


def _analyse_windows(store: Path, target: Path, name: str, parameters: Any, windows: Sequence[Window]) -> int:
    stem = f"epochs-{windows[0].epoch:09}-{windows[-1].epoch:09}"
    return _write(_stretch(store, name, parameters, windows), target, stem)


def _analyse_pair(
    base: Path, store: Path, target: Path, name: str, parameters: Any, pair: tuple[Window, Window]
) -> int:
    before, after = Run(base).snapshot(pair[0]), Run(store).snapshot(pair[1])
    table = table_of(find_analysis(name)(before, after, parameters=parameters))
    return _write(with_epoch(table, pair[1]), target, f"epoch-{pair[1].epoch:09}")


def _write(table: pa.Table, target: Path, stem: str) -> int:
    # A task that is run again overwrites its own file; one that is killed leaves nothing that readers take for data.
    with whole_file(target / f"{stem}.parquet") as file:
        # Rows are in the order of epochs: readers of a few epochs skip the other row groups.
        pq.write_table(table, file, compression="zstd", row_group_size=_ROW_GROUP)
    return int(table.num_rows)


def _critical_path_of(store: Path, window: Window) -> CriticalPath:
    from pag_graph.analyses.critical_path import critical_path

    return critical_path(Run(store).snapshot(window))
