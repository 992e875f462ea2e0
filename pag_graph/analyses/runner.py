"""Who supplies windows to analyses: one, every epoch, a series, all rounds, here or in tasks, in memory or spread."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pag_graph.analyses import find_analysis
from pag_graph.analyses.definition import ReportAnalysis, RunAnalysis, WindowAnalysis
from pag_graph.analyses.result_tables import answered_schema, table_of
from pag_graph.analyses.view import View
from pag_graph.graph.pinned import PinnedRun
from pag_graph.graph.run import Run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pag_graph.analyses.definition import Analysis
    from pag_graph.analyses.reports import Report
    from pag_graph.builder.engine import Engine
    from pag_graph.graph.window import Window

_OF_WINDOW = {"window", "epoch", "role", "start_ns", "end_ns"}
"""What a summary says of its window."""


@dataclass(frozen=True, kw_only=True)
class Runner:
    """Runs analyses on windows of a run."""

    run: Run
    """The run."""
    engine: Engine
    """Where stretches of windows are looked at."""
    spread: Callable[[Window], View] | None
    """Instead of that: looks at one window after the other, each spread over many tasks."""
    progress: Callable[[str, int, int], None]
    """Called with (label, done, all)."""

    def one(self, analysis: WindowAnalysis[Any], window: Window, parameters: Any) -> pa.Table | Report:
        """Return what an analysis says of one window.

        Parameters
        ----------
        analysis
            Of windows.
        window
            One of the run's.
        parameters
            Of the analysis.

        Returns
        -------
        Table or Report
            Its answer.
        """
        return analysis(self.view(window), parameters)

    def view(self, window: Window) -> View:
        """Return a view of a window.

        Parameters
        ----------
        window
            One of the run's.

        Returns
        -------
        View
            Spread over many tasks, if the runner spreads windows.
        """
        return View(run=self.run, windows=[window]) if self.spread is None else self.spread(window)

    def each(
        self, analysis: WindowAnalysis[Any] | RunAnalysis[Any], windows: Sequence[Window], parameters: Any
    ) -> pa.Table:
        """Return the rows of windows of epochs.

        Parameters
        ----------
        analysis
            Of windows, or of a run in parts.
        windows
            Of epochs.
        parameters
            Of the analysis.

        Returns
        -------
        Table
            Its rows in the order of the windows, each with its ``epoch``.
        """
        return pa.concat_tables(self.parts(analysis, windows, parameters), promote_options="permissive")

    def parts(
        self, analysis: WindowAnalysis[Any] | RunAnalysis[Any], windows: Sequence[Window], parameters: Any
    ) -> Iterator[pa.Table] | list[pa.Table]:
        """Return the rows of windows of epochs, some windows at a time.

        Parameters
        ----------
        analysis, windows, parameters
            As for `each`.

        Returns
        -------
        iterable of Table
            In the order of the windows; one table has the rows of some of them.
        """
        if self.spread is not None:
            return self.spread_rows(analysis, windows, parameters)
        # In this process the store is open already.
        run = self.run if self.engine.in_process else PinnedRun.of(self.run)
        task = partial(rows_of_stretch, run, analysis.name, parameters)
        chosen = isinstance(analysis, RunAnalysis) and analysis.choose is not None
        # Edges between chosen rounds are not read.
        stretches = [[w] for w in windows] if chosen else list(self.run.stretches(windows, tasks=self.engine.tasks))
        return self.engine.map(task, stretches, label=analysis.name, progress=self.progress)

    def spread_rows(
        self, analysis: WindowAnalysis[Any] | RunAnalysis[Any], windows: Sequence[Window], parameters: Any
    ) -> Iterator[pa.Table]:
        """Yield the rows of windows of epochs, each window spread over many tasks.

        Parameters
        ----------
        analysis, windows, parameters
            As for `each`.

        Yields
        ------
        Table
            The rows of one window, with its ``epoch``.
        """
        assert self.spread is not None  # noqa: S101  (the caller has asked)
        for place, window in enumerate(windows):
            self.progress(analysis.name, place, len(windows))
            yield with_epochs(analysis.table(self.spread(window), parameters), [window])
        self.progress(analysis.name, len(windows), len(windows))

    def whole(self, analysis: RunAnalysis[Any], rounds: list[Window], parameters: Any) -> pa.Table | Report:
        """Return what an analysis says of the whole run.

        Parameters
        ----------
        analysis
            Of a run.
        rounds
            All rounds of the run.
        parameters
            Of the analysis.

        Returns
        -------
        Table or Report
            Its answer.
        """
        if analysis.part is None:
            return analysis(self.run, parameters)
        if analysis.choose is not None:
            rounds = analysis.choose(self.run, *analysis.arguments(parameters))
        return analysis(self.run, parameters, parts=self.each(analysis, rounds, parameters))

    def series(self, analysis: WindowAnalysis[Any], windows: Sequence[Window], parameters: Any) -> pa.Table:
        """Return the rows of free windows.

        Parameters
        ----------
        analysis
            Of windows.
        windows
            Free ones.
        parameters
            Of the analysis.

        Returns
        -------
        Table
            Rows in the order of the windows, after the columns ``window`` (its place), ``from_ns`` and ``to_ns``. Of an
            analysis that makes reports one row per window: what its summary says.
        """
        if isinstance(analysis, ReportAnalysis):
            parts = [_summed_up(analysis(snapshot, parameters)) for snapshot in self.run.snapshots(windows)]
            places = pa.array([place for place, part in enumerate(parts) for _ in range(part.num_rows)], pa.int64())
            # A summary's columns are null where a window has nothing to say.
            table = pa.concat_tables(parts, promote_options="permissive")
        else:
            # A stretch of windows is in memory at a time.
            stretches = list(self.run.stretches(windows))
            tables = [analysis.table(View(run=self.run, windows=part), parameters) for part in stretches]
            before = [0]
            for part in stretches:
                before.append(before[-1] + len(part))
            places = pa.chunked_array(
                [
                    pa.array(table["window"].to_numpy() + first, pa.int64())
                    for table, first in zip(tables, before[:-1], strict=True)
                ],
                pa.int64(),
            )
            table = pa.concat_tables(tables).drop_columns(["window"])
        starts, ends = (pa.array([getattr(window, name) for window in windows]) for name in ("start_ns", "end_ns"))
        for index, (name, column) in enumerate(
            {"window": places, "from_ns": starts.take(places), "to_ns": ends.take(places)}.items()
        ):
            table = table.add_column(index, name, column)
        return table


def over(analysis: Analysis[Any], run: Run, last: int, parameters: Any = None) -> pa.Table:
    """Return an answer over all epochs up to one, made anew.

    Parameters
    ----------
    analysis
        Of windows, or of a run.
    run
        The run, which may go on behind that epoch.
    last
        The epoch.
    parameters
        Of the analysis.

    Returns
    -------
    pa.Table
        Of windows the rows of each, with its ``epoch``; of a run what it says of the rounds up to that epoch.
    """
    run_until = run.until(last)
    epochs = run_until.rounds if isinstance(analysis, RunAnalysis) else run_until.epochs["epoch"].to_list()
    schema = answered_schema(analysis.schema)
    if not epochs:
        return schema.empty_table()
    # Edges get their labels from all windows of the run.
    windows = run.windows(epochs)
    assert isinstance(analysis, WindowAnalysis | RunAnalysis)  # noqa: S101  (pairs have no epochs)
    if isinstance(analysis, RunAnalysis) and analysis.part is None:
        rows = table_of(analysis(run_until, parameters))
    else:
        tables = [with_epochs(analysis.table(View(run=run, windows=w), parameters), w) for w in run.stretches(windows)]
        rows = pa.concat_tables(tables, promote_options="permissive")
        if isinstance(analysis, RunAnalysis):
            rows = table_of(analysis(run_until, parameters, parts=rows))
    return rows if "epoch" in rows.column_names else rows.append_column("epoch", pa.array([last] * rows.num_rows))


def with_epochs(table: pa.Table, windows: Sequence[Window]) -> pa.Table:
    """Give rows of several windows their epochs.

    Parameters
    ----------
    table
        Rows with the place of their ``window``.
    windows
        Of epochs.

    Returns
    -------
    Table
        Without ``window``; rows that have no ``epoch`` of their own get that of their window.
    """
    place, table = table["window"], table.drop_columns(["window"])
    if "epoch" in table.column_names:
        return table
    epochs = pa.array([window.epoch for window in windows], pa.int64())
    return table.append_column(pa.field("epoch", pa.int64(), nullable=False), epochs.take(place))


def with_epoch(table: pa.Table, window: Window) -> pa.Table:
    """Give rows of one window its epoch, unless they have one.

    Parameters
    ----------
    table
        Rows of one window.
    window
        Of an epoch.

    Returns
    -------
    Table
        With ``epoch``.
    """
    if "epoch" in table.column_names:
        return table
    epoch = pa.array([window.epoch] * table.num_rows, pa.int64())
    return table.append_column(pa.field("epoch", pa.int64(), nullable=False), epoch)


def rows_of_stretch(run: PinnedRun | Run, name: str, parameters: Any, windows: Sequence[Window]) -> pa.Table:
    """Return the rows of some windows of epochs.

    Parameters
    ----------
    run
        The run, or its state, which a task opens.
    name
        Name of the analysis, by which a task knows it.
    parameters
        Of the analysis.
    windows
        Of epochs, that follow each other.

    Returns
    -------
    Table
        As of `with_epochs`.
    """
    opened = run if isinstance(run, Run) else run.open()
    analysis: Analysis[Any] = find_analysis(name)
    assert isinstance(analysis, WindowAnalysis | RunAnalysis)  # noqa: S101  (pairs are compared elsewhere)
    return with_epochs(analysis.table(View(run=opened, windows=windows), parameters), windows)


def _summed_up(result: pa.Table | Report) -> pa.Table:
    """Return one row: the plain values of a summary, but for those that say which window it is."""
    values = {
        name: value
        for name, value in result.summary().items()
        if name not in _OF_WINDOW and (value is None or isinstance(value, bool | int | float | str))
    }
    return pa.table({name: [value] for name, value in values.items()})
