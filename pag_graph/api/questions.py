"""A committed graph, and what it can be asked."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from pag_graph.analyses import PairAnalysis, RunAnalysis, WindowAnalysis, all_entries, find_analysis
from pag_graph.analyses.runner import Runner
from pag_graph.api.building import engine_of
from pag_graph.api.outputs import Outputs
from pag_graph.builder.engine import silent
from pag_graph.errors import InvalidParameterError
from pag_graph.graph.pinned import PinnedRun
from pag_graph.graph.window import CHOICES
from pag_graph.methods import AnalysisMethods
from pag_graph.model.given import path_of
from pag_graph.model.units import short

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from pag_graph.analyses import Analysis, Entry, Report
    from pag_graph.analyses.critical_path import CriticalPath
    from pag_graph.analyses.view import View
    from pag_graph.builder.engine import Engine
    from pag_graph.graph.run import Run
    from pag_graph.graph.snapshot import Snapshot
    from pag_graph.graph.window import Window
    from pag_graph.model.enums import EpochRole

_LEAST_WIDTH = 300


def open(store: str | os.PathLike[str]) -> Pag:  # noqa: A001  (pag_graph.open reads as it should)
    """Open a committed store."""
    return Pag(path_of(store, "store"))


class Pag(Outputs, AnalysisMethods):
    """A committed program activity graph.

    Parameters
    ----------
    store
        Directory of the store.
    """

    def _ask(self, name: str, arguments: dict[str, Any]) -> Any:
        """Run an analysis with what its method was called with; what is the default counts as not given."""
        defaults = {item.name: item.default for item in find_analysis(name).parameter_list}
        options = {key: value for key, value in arguments.items() if key not in {"self", "parameters", "unknown"}}
        options = {key: value for key, value in options.items() if key not in defaults or value != defaults[key]}
        if options.get("progress", silent) is None:
            del options["progress"]
        return self.analyse(name, arguments["parameters"], **options, **arguments["unknown"])

    def _prepared(
        self, name: str, parameters: Any, options: Mapping[str, Any], *, spark: SparkSession | None = None
    ) -> tuple[Analysis[Any], Any]:
        """Find an analysis that can look at this run, and make its parameters."""
        analysis = find_analysis(name)
        analysis.check(self.run, across=spark is not None)
        if options and parameters is not None:
            message = f"Give {', '.join(options)} as fields of the parameters, or give no parameters."
            raise InvalidParameterError(message)
        if parameters is None:
            return analysis, analysis.make_parameters(options)
        if analysis.parameters is None or not isinstance(parameters, analysis.parameters):
            takes = "no parameters" if analysis.parameters is None else analysis.parameters.__name__
            message = f"{analysis.name} takes {takes}, and {short(repr(parameters), 80)} was given."
            raise InvalidParameterError(message, f"Give its fields by name; `help(pag.{analysis.method})` lists them.")
        return analysis, parameters

    def _of_windows(
        self,
        name: str,
        parameters: Any,
        options: Mapping[str, Any],
        windows: str,
        spark: SparkSession | None = None,
    ) -> tuple[WindowAnalysis[Any], Any]:
        """Find an analysis of windows; `windows` are what it is to look at."""
        analysis = find_analysis(name)
        analysis.check(self.run, across=spark is not None)
        if not isinstance(analysis, WindowAnalysis):
            message = f"{analysis.name} does not look at one window, so it cannot look at {windows}."
            raise InvalidParameterError(message)
        return analysis, self._prepared(name, parameters, options, spark=spark)[1]

    def _runner(
        self,
        engine: Engine | str = "local",
        spark: SparkSession | None = None,
        progress: Callable[[str, int, int], None] = silent,
    ) -> Runner:
        chosen = engine_of(engine)
        return Runner(run=self.run, engine=chosen, spread=spreading(self.run, spark), progress=progress)

    def critical_path(
        self,
        *,
        epoch: int | None = None,
        role: EpochRole | Literal["startup", "shutdown"] | None = None,
        between: tuple[int, int] | None = None,
        latency: int | None = None,
        spark: SparkSession | None = None,
    ) -> CriticalPath:
        """Return the critical path of a window (see `snapshot`, `analyse` and `pag_graph.analyses.critical_path`).

        Parameters
        ----------
        epoch, role, between, latency
            As for `snapshot`.
        spark
            Spread the window over this session's executors, if it is too large for one task. The answer is the same.

        Returns
        -------
        CriticalPath
            ``steps`` has one row per step (`CRITICAL_PATH`), in time order; their durations add up to the window's
            length, to the nanosecond.

        Raises
        ------
        InvalidParameterError
            If there is no such window.
        UnsupportedPlanError
            If the run's clocks are not aligned.
        PagError
            If the graph has a gap, or a wait that no message ended; a `CycleError` if the walk comes back to where it
            was.
        """
        from pag_graph.analyses.critical_path import critical_path

        window = self._window(epoch=epoch, role=role, between=between, latency=latency)
        return critical_path(self._runner(spark=spark).view(window))

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
    ) -> pa.Table | Report:
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
        pa.Table or Report
            Rows of the analysis' schema, or a result that has them as `table`.

        Raises
        ------
        InvalidParameterError
            If there is no such analysis or parameter, the analysis looks at no single window and one was given, or it
            does not compare and something to compare with was given.
        UnsupportedPlanError
            If the run's rule set gives the analysis no meaning, or its windows cannot be spread.
        """
        window: dict[str, Any] = {key: options.pop(key) for key in CHOICES if key in options}
        other_window: dict[str, Any] = {key: options.pop(f"against_{key}", None) for key in CHOICES}
        analysis, parameters = self._prepared(name, parameters, options, spark=spark)
        _check_comparison(analysis, against, other_window)
        runner = self._runner(engine, spark, progress)
        if isinstance(analysis, WindowAnalysis):
            return runner.one(analysis, self._window(**window), parameters)
        if isinstance(analysis, PairAnalysis):
            return analysis(*self._pair(window, other_window, against), parameters)
        if any(value is not None for value in window.values()):
            message = f"{analysis.name} looks at all rounds of a run, not at one window."
            raise InvalidParameterError(message)
        assert isinstance(analysis, RunAnalysis)  # noqa: S101  (there is no other kind)
        return runner.whole(analysis, self.rounds(), parameters)

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
        analysis, chosen_parameters = self._of_windows(name, parameters, options, "each", spark)
        return self._runner(engine, spark, progress).each(analysis, self.run.windows(), chosen_parameters)

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
        analysis, chosen_parameters = self._of_windows(name, parameters, options, "a series of them")
        return self._runner().series(
            analysis, self.run.series(every_ns, step_ns=step_ns, between=between), chosen_parameters
        )

    def _pair(
        self, window: dict[str, Any], other_window: dict[str, Any], against: Pag | None
    ) -> tuple[list[Snapshot], list[Snapshot]]:
        """Choose what to compare: with nothing given all rounds of two runs, or a run's slowest with its typical."""
        chosen = any(value is not None for value in window.values())
        chosen_other = any(value is not None for value in other_window.values())
        base = against or self
        if against is not None and not chosen and not chosen_other:
            return [base.run.snapshot(w) for w in base.rounds()], [self.run.snapshot(w) for w in self.rounds()]
        after = [self.snapshot(**window)]
        if chosen_other:
            return [base.snapshot(**other_window)], after
        if against is not None:
            return [base.snapshot(**window)], after
        rounds = sorted(self.rounds(), key=lambda w: (w.span_ns, w.start_ns))
        return [self.run.snapshot(rounds[(len(rounds) - 1) // 2])], after

    def critical_paths(self, engine: Engine | str = "local") -> list[CriticalPath]:
        """Return the critical paths of all windows in time order; each is a task of its own on the engine."""
        chosen = engine_of(engine)
        return chosen.map(
            partial(_critical_path_of, PinnedRun.of(self.run)),
            self.run.windows(),
            label="critical path",
            progress=silent,
        )


def _add_methods() -> None:
    """Give `Pag` a method for every analysis of another distribution; those of this one are `AnalysisMethods`."""
    for entry in all_entries():
        if not hasattr(Pag, entry.method):
            setattr(Pag, entry.method, _method(entry))


def _method(entry: Entry) -> Callable[..., pa.Table | Report]:
    def method(self: Pag, parameters: Any = None, **options: Any) -> pa.Table | Report:
        return self.analyse(entry.name, parameters, **options)

    method.__name__, method.__qualname__ = entry.method, f"Pag.{entry.method}"
    method.__doc__ = f"{entry.help}\n\nSee `Pag.analyse` for the choice of windows, and docs/analyses.md for the rows."
    return method


_add_methods()


def spreading(run: Run, spark: SparkSession | None) -> Callable[[Window], View] | None:
    """Return what makes views of windows whose edges stay on the executors of a session.

    Parameters
    ----------
    run
        A committed run.
    spark
        The session; None where windows are to be looked at in this process, or by tasks of an engine.

    Returns
    -------
    callable or None
        Takes a window, returns its view, and reads nothing yet; as `Runner.spread` wants it. None without a session.
    """
    if spark is None:
        return None
    from pag_graph.engines.frames import spark_view

    return partial(spark_view, run, spark)


def _check_comparison(analysis: Analysis[Any], against: Any, other_window: Mapping[str, Any]) -> None:
    """Refuse something to compare with where nothing is compared, or what is no run."""
    given = ["against"] if against is not None else []
    given += [f"against_{name}" for name, value in other_window.items() if value is not None]
    if given and not isinstance(analysis, PairAnalysis):
        message = f"{analysis.name} does not compare, so it does not take {', '.join(given)}."
        raise InvalidParameterError(message)
    if against is not None and not isinstance(against, Pag):
        message = f"against is {against!r}, and must be an open run."
        raise InvalidParameterError(message, "Such as against=pag_graph.open('before.pag').")


def _critical_path_of(state: PinnedRun, window: Window) -> CriticalPath:
    from pag_graph.analyses.critical_path import critical_path

    return critical_path(state.open().snapshot(window))
