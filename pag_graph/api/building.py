"""Building a store, here or on Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pag_graph.builder.engine import silent
from pag_graph.errors import InvalidParameterError
from pag_graph.graph.window import whole_number
from pag_graph.model.enums import RuleSet
from pag_graph.model.given import path_of
from pag_graph.model.units import short
from pag_graph.store.durable import durable

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence

    from pyspark.sql import SparkSession

    from pag_graph.builder.engine import Engine
    from pag_graph.builder.report import BuildReport
    from pag_graph.motif.alerts import Rule
    from pag_graph.rules.rows import RuleParameters
    from pag_graph.store.commit import Mode


def make_engine(name: str, spark: SparkSession | None = None) -> Engine:
    """Return the engine of a name.

    Parameters
    ----------
    name
        ``local`` for this process, ``spark`` for tasks of Spark.
    spark
        The session whose executors work; the active one, or a new one, where absent. ``local`` does not look at it.

    Returns
    -------
    Engine
        Where the name is ``spark`` its session runs already: without a session, this call starts Spark.

    Raises
    ------
    InvalidParameterError
        If there is no engine of that name.
    EngineError
        If Spark cannot be started.
    MissingExtraError
        If it has to be started, and PySpark is not installed.
    """
    if name == "local":
        from pag_graph.engines.local import LocalEngine

        return LocalEngine()
    if name != "spark":
        message = f"There is no engine {name!r}; there are local, spark."
        raise InvalidParameterError(message, None, {"engine": name})
    from pag_graph.engines.spark import SparkEngine

    return SparkEngine(spark)


def engine_of(engine: Engine | str) -> Engine:
    """Return an engine that is given, or whose name is.

    Parameters
    ----------
    engine
        A name, as for `make_engine`, or an engine of one's own.

    Returns
    -------
    Engine
        To give tasks to.

    Raises
    ------
    InvalidParameterError
        If it is neither.
    """
    if isinstance(engine, str):
        return make_engine(engine)
    if not callable(getattr(engine, "map", None)):
        message = f"engine is {short(repr(engine), 80)}, and must be local, spark, or an engine."
        raise InvalidParameterError(message, None, {"engine": engine})
    return engine


def rule_set(name: RuleSet | str | None) -> RuleSet | None:
    """Return the rule set of a name.

    Parameters
    ----------
    name
        None for the one that a trace asks for.

    Returns
    -------
    RuleSet or None
        None where the name is.

    Raises
    ------
    InvalidParameterError
        If there is no rule set of that name.
    """
    if name is not None and name not in list(RuleSet):
        message = f"There is no rule set {name!r}; there are {', '.join(RuleSet)}."
        raise InvalidParameterError(message, None, {"rules": name})
    return None if name is None else RuleSet(name)


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
    queries: Sequence[str] = (),
    alerts: str | os.PathLike[str] | Sequence[Rule] = (),
    fsync: bool = False,
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
    queries
        Standing queries to add to those that the store has, such as ``k-hops:k=3``: this commit and all later ones say
        how their answers change (`pag_graph.changes`).
    alerts
        Rules of alerts to add, or a file of them (`pag_graph.alerts`).
    fsync
        Whether the commit shall outlast a loss of power, too, and not only the end of this process.

    Returns
    -------
    BuildReport
        What was committed, and what was found.

    Raises
    ------
    InvalidParameterError
        If there is no such engine, rule set or mode, or `slice_events` is no whole number from 1.
    UnsupportedPlanError
        If a query cannot be a standing one.
    """
    # Here and below: what needs compiled kernels is loaded by whom it serves, so that opening a store takes no second.
    from pag_graph.api.standing import standings
    from pag_graph.builder.build import build as run_build
    from pag_graph.builder.rule_choice import rule_parameters

    places = path_of(trace, "trace"), path_of(store, "store")
    chosen_rules = rule_set(rules)
    if slice_events is not None and whole_number(slice_events, "slice_events") < 1:
        message = f"slice_events is {slice_events}, and must be at least 1."
        raise InvalidParameterError(message)
    chosen = engine_of(engine)
    with durable(wanted=fsync):
        # Executors have working directories of their own.
        return run_build(
            places[0].absolute(),
            places[1].absolute(),
            engine=chosen,
            rules=chosen_rules,
            parameters=rule_parameters(parameters),
            force_rules=force_rules,
            mode=mode,
            slice_events=slice_events,
            progress=progress,
            derive=standings(queries, alerts),
        )
