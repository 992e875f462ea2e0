"""What an analysis is: one frozen value, from which every surface is made.

The CLI command with its options, the Spark job, the method of `Pag`, the page of the documentation and the schema of
the result all come from it. It stands in the module of its function, as `ANALYSIS`; `pag_graph.analyses.index` lists
the modules, so that listing all analyses imports none.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, NamedTuple, TypeVar

from pag_graph.analyses.parameters import Parameter, make_parameters, parameters_of
from pag_graph.analyses.result_tables import placed_table, plain_parameters, table_of, typed_table
from pag_graph.errors import UnsupportedPlanError
from pag_graph.graph.needs import Needs

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import polars as pl
    import pyarrow as pa

    from pag_graph.analyses.reports import Report
    from pag_graph.analyses.view import View
    from pag_graph.graph.run import Run
    from pag_graph.graph.snapshot import Snapshot
    from pag_graph.graph.window import Window

P = TypeVar("P")


class Standing(StrEnum):
    """How an answer over all answered epochs follows from the one before, when more rows are committed."""

    WINDOW = "window"
    """Each epoch for itself: only what its window shows counts. An edge that comes late and touches it changes that."""
    LABEL = "label"
    """Each epoch for itself: only rows that carry it count, and those are all there when it is closed."""
    LINEAR = "linear"
    """Sums over epochs: only the keys of what is new change."""
    ORDERED = "ordered"
    """Each epoch for itself and the ones before it."""
    JOIN = "join"
    """Rows that are found together."""


class Resumed(NamedTuple):
    """The end of an answer over epochs, and what its next end follows from.

    ``resume(run, last, parameters, since, memory, warm)`` makes it: of the rounds from an epoch on, or of more.
    """

    since: int
    """The first epoch that it is about."""
    rows: pa.Table
    """All rows of the answer about this epoch and later ones."""
    memory: pl.DataFrame
    """What to remember: rows of `STANDING` without their owner."""


class Scope(StrEnum):
    """What an analysis looks at."""

    WINDOW = "window"
    """Windows, each for itself."""
    RUN = "run"
    """All rounds of a run: what each of them adds, or the run as one."""
    PAIR = "pair"
    """Two windows, or two lists of windows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """How to draw a result."""

    kind: Literal["bars", "lines", "matrix", "timeline", "waterfall"]
    """A timeline shows the window itself, and takes no columns; a waterfall, how differences lead to another sum."""
    x: tuple[str, ...] = ()
    """Columns that together name a bar, or that lie along the first axis."""
    y: tuple[str, ...] = ()
    """Columns that are measured, side by side; for a matrix the column along the second axis."""
    value: str | None = None
    """For a matrix: column that gives the shade."""
    colour: tuple[str, ...] = ()
    """Columns that tell series apart; of bars they are stacked."""
    panel: str | None = None
    """Column that makes a panel of its own for each of its values."""
    unit: str | None = None
    """Column with the unit of what is measured, where its name does not say it: ns, or share."""
    interval: tuple[str, str] | None = None
    """For bars: columns with the ends of an interval around what is measured."""
    ends: tuple[str, str] | None = None
    """For a waterfall: columns whose sums it begins and ends with."""

    @property
    def columns(self) -> set[str]:
        """All columns that it shows."""
        column_names = {*self.x, *self.y, *self.colour, *(self.interval or ()), *(self.ends or ())}
        return column_names | {name for name in (self.value, self.panel, self.unit) if name}


@dataclass(frozen=True, kw_only=True, eq=False)
class Analysis(Generic[P]):
    """What all analyses have; the classes below say what each looks at."""

    scope: ClassVar[Scope]

    name: str
    """As on the command line; with underscores, the method of `Pag`."""
    function: Callable[..., Any]
    """What computes it; its docstring is the documentation."""
    schema: pa.Schema
    """Columns of the result."""
    parameters: type[P] | None = None
    """Dataclass of parameters, if the function takes any."""
    needs: Needs = Needs.NOTHING
    """What a run must be, for the analysis to have a meaning."""
    output: str = ""
    """Name of the schema, for the documentation."""
    example: str = ""
    """Arguments of an example call, after the store."""
    example_values: tuple[tuple[str, Any], ...] = ()
    """Names and values of parameters that an example in Python, and of a job, must give."""
    rows: str = "rows"
    """What the rows are called in JSON."""
    heaviest: str = ""
    """Column by which a table for people is sorted, most first; the result's own order where it is empty."""
    columns: tuple[str, ...] = ()
    """Columns of a table for people; all where it is empty."""
    cypher: str | None = None
    """Query of the Cypher library that answers the same in Neo4j."""
    chart: Chart | None = None
    """How the rows are drawn; None where they are not."""
    across: bool = False
    """Whether it can look at views that are spread, so that Spark can divide one window among many tasks."""
    standing: Standing | None = None
    """How it is kept up to date while more is committed; None where it cannot be."""
    compares_workers: bool = False
    """Whether it compares workers that run the same, which the whole run tells where they do not all (`Run.peers`)."""
    alarm: bool = False
    """Whether rows are bad news: the command's exit code then says that there are any."""

    @property
    def method(self) -> str:
        """Name in Python."""
        return self.name.replace("-", "_")

    @property
    def example_store(self) -> str:
        """What its examples call the store that they look at."""
        return "run.pag" if self.needs.usual is Needs.NOTHING.usual else f"run-{self.needs.usual}.pag"

    @property
    def doc(self) -> str:
        """The function's docstring."""
        return inspect.getdoc(self.function) or ""

    @property
    def help(self) -> str:
        """First line of it."""
        return self.doc.partition("\n")[0]

    @property
    def report(self) -> type[Report] | None:
        """What it returns if not a table."""
        return _report_of(self.function)

    @cached_property
    def parameter_list(self) -> tuple[Parameter, ...]:
        """The parameters, in the order of the dataclass."""
        return parameters_of(self.parameters)

    def make_parameters(self, values: Mapping[str, Any] | None = None) -> P | None:
        """Return the parameters dataclass, from values as they come from a command line or from JSON.

        Parameters
        ----------
        values
            By name; defaults where absent.

        Returns
        -------
        dataclass or None
            None for an analysis without parameters.

        Raises
        ------
        InvalidParameterError
            If there is no such parameter, one is missing, or has another type.
        """
        arguments = make_parameters(self.name, self.parameter_list, values or {})
        return None if self.parameters is None else self.parameters(**arguments)

    def arguments(self, parameters: P | None) -> tuple[P, ...]:
        """Return what functions take after what they look at.

        Parameters
        ----------
        parameters
            Those that were given, if any were.

        Returns
        -------
        tuple
            The parameters, defaults where absent; empty for an analysis without parameters.
        """
        if self.parameters is None:
            return ()
        return (self.parameters() if parameters is None else parameters,)

    def plain(
        self, result: pa.Table | Report, parameters: P | None, window: Window | None, *, most: int | None = None
    ) -> dict[str, Any]:
        """Return an answer as plain values: what ``--format json`` prints.

        Parameters
        ----------
        result
            What it returned.
        parameters
            What it was asked with.
        window
            The window that it looked at, of an analysis of one.
        most
            Rows, the first ones; all where absent.

        Returns
        -------
        dict
            Facts of the window, the parameters, what a report sums up, and the rows under their own name.
        """
        table = table_of(result)
        return {
            **({} if window is None else window.facts),
            **plain_parameters(parameters),
            **({} if table is result else result.summary()),
            self.rows: (table if most is None else table.slice(0, most)).to_pylist(),
        }

    def check(self, run: Run, *, across: bool = False) -> None:
        """Refuse a run that the analysis has no meaning for.

        Parameters
        ----------
        run
            To be looked at.
        across
            Whether its windows are to be spread.

        Raises
        ------
        UnsupportedPlanError
            If the run is not what the analysis needs, or its windows cannot be spread.
        """
        if not self.needs.met_by(run.rules):
            able = " or ".join(sorted(map(str, self.needs.rule_sets)))
            message = (
                f"{self.name} is defined for runs of the rule set {able}, and this one was built with {run.rules}."
            )
            raise UnsupportedPlanError(message, f"Build the trace with `--rules {self.needs.usual}`.")
        if across:
            self.check_across()

    def check_standing(self, run: Run) -> None:
        """Refuse to be a standing query, if nobody knows how its answer follows from the one before.

        Parameters
        ----------
        run
            The run that it is to be registered for.

        Raises
        ------
        UnsupportedPlanError
            With what to do instead.
        """
        self.check(run)
        if self.standing is None:
            message = f"{self.name} cannot be a standing query: its answer must be computed again from all rounds."
            raise UnsupportedPlanError(message, f"Ask for it when you need it: `pag {self.name} STORE`.")
        if self.compares_workers and not run.one_dataflow:
            message = f"{self.name} cannot be a standing query of this run: only the whole run shows who is alike."
            raise UnsupportedPlanError(message, f"Ask for it when you need it: `pag {self.name} STORE`.")

    def check_across(self) -> None:
        """Refuse to be spread over partitions, if it follows edges one after the other.

        Raises
        ------
        UnsupportedPlanError
            With what to do instead.
        """
        if not self.across:
            message = f"{self.name} follows a window's edges one after the other, so it needs all of them in one task."
            hint = "Leave out the Spark session: engine='spark' gives every window a task of its own."
            raise UnsupportedPlanError(message, hint)


@dataclass(frozen=True, kw_only=True, eq=False)
class WindowAnalysis(Analysis[P]):
    """An analysis of windows, each for itself; called with one, it returns its answer."""

    scope = Scope.WINDOW

    def table(self, view: View, parameters: P | None = None) -> pa.Table:
        """Return the rows of all windows of a view, in their order.

        Parameters
        ----------
        view
            Windows of a run.
        parameters
            Its parameters; defaults where absent.

        Returns
        -------
        Table
            Rows of `schema`, with the column ``window``: the place of their window.
        """
        raise NotImplementedError

    def __call__(self, subject: Snapshot | View, parameters: P | None = None) -> pa.Table | Report:
        """Return the answer on one window."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True, eq=False)
class TableAnalysis(WindowAnalysis[P]):
    """Its function makes rows of all windows of a view: ``f(view, parameters)``, with the place of their ``window``."""

    function: Callable[..., pl.DataFrame]

    def table(self, view: View, parameters: P | None = None) -> pa.Table:
        """Return the rows of all windows of a view, in their order.

        Parameters
        ----------
        view, parameters
            As for `WindowAnalysis.table`.

        Returns
        -------
        Table
            What the function makes of the view: rows of `schema`, with the place of their ``window``.
        """
        return placed_table(self.function(view, *self.arguments(parameters)), self.schema)

    def __call__(self, subject: Snapshot | View, parameters: P | None = None) -> pa.Table:
        """Return the rows of one window."""
        from pag_graph.analyses.view import view_of

        return typed_table(self.function(view_of(subject), *self.arguments(parameters)), self.schema)


@dataclass(frozen=True, kw_only=True, eq=False)
class ReportAnalysis(WindowAnalysis[P]):
    """Its function makes a report of one window: ``f(snapshot or view, parameters)``."""

    function: Callable[..., Report]
    steps: Callable[[View], pl.DataFrame] | None = None
    """What makes the rows alone, of all windows of a view, where that is less work."""

    def table(self, view: View, parameters: P | None = None) -> pa.Table:
        """Return the rows of all windows of a view, in their order.

        Parameters
        ----------
        view, parameters
            As for `WindowAnalysis.table`; `steps` takes no parameters.

        Returns
        -------
        Table
            Rows of `schema`, with the place of their ``window``: made by `steps` all at once, or else those of one
            report after the other.
        """
        import pyarrow as pa

        if self.steps is not None:
            return placed_table(self.steps(view), self.schema)
        tables = [self(snapshot, parameters).table for snapshot in view.run.snapshots(view.windows)]
        places = [[place] * table.num_rows for place, table in enumerate(tables)]
        window = pa.array([place for table_places in places for place in table_places], pa.int64())
        return pa.concat_tables(tables).append_column("window", window)

    def __call__(self, subject: Snapshot | View, parameters: P | None = None) -> Report:
        """Return the report of one window."""
        from pag_graph.analyses.view import view_of

        looked_at = view_of(subject)
        return self.function(looked_at if looked_at.spread else looked_at.shown, *self.arguments(parameters))


@dataclass(frozen=True, kw_only=True, eq=False)
class RunAnalysis(Analysis[P]):
    """An analysis of all rounds: ``f(run, parameters, parts=rows)``, or ``f(run, parameters)`` of the run as one."""

    scope = Scope.RUN

    part: Callable[..., pl.DataFrame] | None = None
    """What makes rows of the windows of a view, ``part(view, parameters)``, with the place of their ``window``."""
    choose: Callable[..., list[Window]] | None = None
    """For parts: says which rounds to look at, ``choose(run, parameters)``, where that is not all of them."""
    resume: str = ""
    """Of a standing query: module whose ``resume`` goes on from what it remembers (`Resumed`)."""

    def table(self, view: View, parameters: P | None = None) -> pa.Table:
        """Return the rows of the parts, in the order of the windows.

        Parameters
        ----------
        view
            Rounds of a run.
        parameters
            Its parameters; defaults where absent.

        Returns
        -------
        Table
            What `part` makes of them, with the column ``window``.
        """
        assert self.part is not None  # noqa: S101  (who asks for parts knows that there are some)
        return self.part(view, *self.arguments(parameters)).to_arrow()

    def __call__(self, run: Run, parameters: P | None = None, *, parts: pa.Table | None = None) -> pa.Table | Report:
        """Return the answer on the run; `parts` are the rows of all rounds that were looked at."""
        part_argument = {} if self.part is None else {"parts": parts}
        return self.function(run, *self.arguments(parameters), **part_argument)


@dataclass(frozen=True, kw_only=True, eq=False)
class PairAnalysis(Analysis[P]):
    """A comparison of two windows, or of two lists of windows: ``f(before, after, parameters)``."""

    scope = Scope.PAIR

    def __call__(
        self,
        before: Snapshot | Sequence[Snapshot],
        after: Snapshot | Sequence[Snapshot],
        parameters: P | None = None,
    ) -> pa.Table | Report:
        """Return the comparison."""
        return self.function(before, after, *self.arguments(parameters))


def _report_of(function: Callable[..., Any]) -> type[Report] | None:
    """Return the class of report that a function says it returns."""
    name = str(inspect.signature(function).return_annotation)
    module = inspect.getmodule(function)
    report = getattr(module, name, None)
    return report if isinstance(report, type) and hasattr(report, "summary") else None
