"""A committed graph: its tables and windows, and what it can be given to other programs as."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

import polars as pl

from pag_graph.builder.engine import silent
from pag_graph.errors import InvalidParameterError
from pag_graph.graph.run import Run
from pag_graph.graph.window import check_choices, whole_number
from pag_graph.model.enums import EpochRole
from pag_graph.model.given import listed, path_of, texts_of
from pag_graph.model.html import facts
from pag_graph.model.tables import STORE_TABLES
from pag_graph.model.units import duration
from pag_graph.store.in_place import check_output, write_whole

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from pag_graph.engines.motif import SparkMotifQuery
    from pag_graph.graph.snapshot import Snapshot
    from pag_graph.graph.window import Window
    from pag_graph.motif.paths import KHopPaths
    from pag_graph.motif.polars_query import MotifQuery
    from pag_graph.sinks.export import Exported
    from pag_graph.sinks.graphframes import Detail

_LEAST_WIDTH = 300
_MOST_ROWS = 2**31 - 1
"""A limit beyond that is none; Spark takes no larger number."""


class Outputs:
    """Tables, windows, frames of Spark, files, pictures and motifs of a committed graph.

    Parameters
    ----------
    store
        Directory of the store.
    """

    def __init__(self, store: Path) -> None:
        # Executors have working directories of their own.
        self.run = Run(path_of(store, "store").absolute())

    def _repr_html_(self) -> str:
        """Return what a notebook shows of the run."""
        run = self.run
        slowest = run.slowest() if run.aligned else None
        return facts(
            f"Run {run.info.path.name}",
            {
                "rule set": str(run.rules),
                "workers": len(run.workers),
                "events": run.info.events,
                "epochs": run.epochs.height,
                "length": duration(run.end_ns),
                "slowest": None if slowest is None else f"{slowest.name} ({duration(slowest.span_ns)})",
                "findings": run.scan("findings").select(pl.len()).collect().item(),
            },
        )

    def view(
        self, epoch: int | None = None, *, epochs: Sequence[int] = (), panels: Sequence[str] = (), height: int = 720
    ) -> Any:
        """Return the lanes, the report and analyses of a window as a widget for a notebook.

        Parameters
        ----------
        epoch
            The epoch to show; the slowest round where absent.
        epochs
            More of them.
        panels
            Names of analyses, as for ``pag page``.
        height
            Of the widget, in pixels.

        Returns
        -------
        anywidget.AnyWidget
            Shows what ``pag page`` writes, so a notebook that was saved shows it too. Needs the extra ``notebook``.

        Raises
        ------
        MissingExtraError
            If the extra is not installed.
        """
        # The workbench uses this room, so it is not imported with it.
        notebook = import_module("pag_graph.workbench.notebook")
        chosen = [*([] if epoch is None else [epoch]), *listed(epochs, "epochs", "epochs")]
        return notebook.view(self, chosen, texts_of(panels, "panels"), height=height)

    @property
    def epochs(self) -> pl.DataFrame:
        """One row per startup, round and shutdown (`PAG_EPOCHS`)."""
        # Frames can be changed in place, and the run reads its own again and again.
        return self.run.epochs.clone()

    def scan(self, table: str) -> pl.LazyFrame:
        """Return any table of the run, lazily: ``scan("epochs")`` as well as ``scan("edges")``.

        Parameters
        ----------
        table
            ``vertices``, ``edges``, ``traffic``, ``epochs``, ``operators``, ``channels``, ``workers`` or ``findings``.

        Returns
        -------
        pl.LazyFrame
            Columns as in `pag_graph.model.tables`; rows in no order.

        Raises
        ------
        InvalidParameterError
            If there is no such table.
        UnsupportedPlanError
            If the store was built before there was this table.
        """
        if not isinstance(table, str) or table not in STORE_TABLES:
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
        role: EpochRole | Literal["startup", "shutdown"] | None = None,
        between: tuple[int, int] | None = None,
        latency: int | None = None,
    ) -> Snapshot:
        """Return the graph of one window (see `Run.window`); of the slowest round where none is chosen.

        Parameters
        ----------
        epoch, role, between, latency
            As for `Run.window`, one of them.

        Returns
        -------
        Snapshot
            Its edges are read; only files and row groups that can hold any of them are.

        Raises
        ------
        InvalidParameterError
            If there is no such window.
        UnsupportedPlanError
            If `between` is asked for and the run's clocks are not aligned.
        StoreError
            If a file is missing or damaged.
        """
        return self.run.snapshot(self._window(epoch=epoch, role=role, between=between, latency=latency))

    def _window(self, **choice: Any) -> Window:
        return self.run.choose(**choice)

    def _window_or_all(self, **choice: Any) -> Window | None:
        """Return the window that is chosen; None, for the whole run, where none is."""
        check_choices(choice)
        return self.run.window(**choice) if any(value is not None for value in choice.values()) else None

    def rounds(self) -> list[Window]:
        """Return the windows of all rounds in time order; startup and shutdown only where the run has no round."""
        windows = self.run.windows()
        return [window for window in windows if window.role is EpochRole.ROUND] or windows

    def spark_vertices(self, spark: SparkSession, epochs: Sequence[int] | None = None) -> DataFrame:
        """Return vertices as a Spark DataFrame in GraphFrames' shape (column ``id``).

        Parameters
        ----------
        spark
            The session to read them with.
        epochs
            Epochs whose events to take, with the far ends of messages that cross into them; all where absent.

        Returns
        -------
        DataFrame
            One row per vertex, columns of `PAG_VERTICES`. The driver has checked the files; their rows are not read
            yet.

        Raises
        ------
        InvalidParameterError
            If there is no such epoch, or the choice is empty.
        StoreError
            If a file is missing or damaged.
        """
        from pag_graph.sinks.graphframes import vertices

        return vertices(self.run, spark, epochs)

    def spark_edges(self, spark: SparkSession, epochs: Sequence[int] | None = None) -> DataFrame:
        """Return edges as a Spark DataFrame in GraphFrames' shape (columns ``src`` and ``dst``).

        Parameters
        ----------
        spark
            The session to read them with.
        epochs
            Epochs that an edge must end in; all where absent. Both ends of each are among `spark_vertices` of the same
            epochs.

        Returns
        -------
        DataFrame
            One row per edge, columns of `PAG_EDGES`. The driver has checked the files; their rows are not read yet.

        Raises
        ------
        InvalidParameterError
            If there is no such epoch, or the choice is empty.
        StoreError
            If a file is missing or damaged.
        """
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

        Parameters
        ----------
        target
            File to make, for CSV a folder.
        to
            ``perfetto``, ``chrome``, ``graphml``, ``csv`` or ``svg``. Where absent the name of `target` says it:
            ``.json`` for Perfetto, ``.graphml``, ``.svg``, or none for a folder of CSV.
        path_only
            Only the critical path, with the vertices and edges on it.
        replace
            Whether to write over what an earlier export wrote there; anything else is left alone.
        progress
            Called with (label, done, all).
        window
            ``epoch``, ``role``, ``between`` or ``latency``, as for `Run.window`; without one the whole run, and for a
            picture its slowest round.

        Returns
        -------
        Exported
            Where it is, its size in bytes, and how many things of each kind it holds.

        Raises
        ------
        InvalidParameterError
            If there is no such format or window, the name of `target` says another format, or a picture of the path
            only is asked for.
        UnsupportedPlanError
            If a critical path is asked for, as every picture does, or `between`, and the run's clocks are not aligned.
        SinkError
            If there is something at `target`, or the file system refuses.
        """
        from pag_graph.sinks.export import export

        chosen, place = self._window_or_all(**window), path_of(target, "target")
        return export(self.run, place, to, window=chosen, path_only=path_only, replace=replace, progress=progress)

    def draw(
        self,
        picture: str | os.PathLike[str],
        *,
        epoch: int | None = None,
        role: EpochRole | Literal["startup", "shutdown"] | None = None,
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
        target = path_of(picture, "picture")
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

        chosen = self._window_or_all(**window)
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
        from pag_graph.motif.polars_query import MotifQuery
        from pag_graph.motif.query import ask
        from pag_graph.motif.shape import PAG_SHAPE
        from pag_graph.motif.store import graph_of_run

        if limit is not None:
            limit = min(whole_number(limit, "limit"), _MOST_ROWS)
            if limit < 1:
                message = f"limit is {limit}, and must be at least 1."
                raise InvalidParameterError(message)
        question = ask(pattern, where, PAG_SHAPE, columns=columns, parameters=parameters, distinct=distinct)
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

        k, limit = whole_number(k, "k"), min(whole_number(limit, "limit"), _MOST_ROWS)
        shown = self._window_or_all(**window) or self._window()
        if spark is None:
            return k_hop_paths(self.run.snapshot(shown), k, limit=limit, through_waits=through_waits)
        from pag_graph.engines.motif import k_hop_paths as on_spark
        from pag_graph.sinks.graphframes import edges_in_window

        vertices = self.spark_vertices(spark)
        edges = edges_in_window(self.run, spark, shown)
        return on_spark(vertices, edges, k=k, limit=limit, through_waits=through_waits)
