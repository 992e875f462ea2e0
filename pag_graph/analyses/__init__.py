"""Analyses: each one definition, used by Python, the CLI, Spark jobs and the documentation."""

from __future__ import annotations

import re
import warnings
from functools import cache
from importlib.metadata import entry_points

from pag_graph.analyses.definition import Analysis, Chart, Flags, Parameter, Result, Scope, table_of
from pag_graph.errors import InvalidParameterError
from pag_graph.model.enums import RuleSet

__all__ = [
    "ANALYSES",
    "Analysis",
    "Chart",
    "Flags",
    "Parameter",
    "Result",
    "Scope",
    "all_analyses",
    "find_analysis",
    "table_of",
]

_ALIGNED = frozenset({RuleSet.TIMELY, RuleSet.STATED})
_ST2 = frozenset({RuleSet.ST2})

ANALYSES: tuple[Analysis, ...] = (
    Analysis(
        name="why",
        output="WHY",
        parameters_name="WhyParameters",
        example="--epoch 5 --lines 20",
        rows="statements",
        rules=_ALIGNED,
        chart=Chart(kind="timeline"),
    ),
    Analysis(
        name="critical-path",
        across=True,
        many_name="critical_paths_of_windows",
        output="CRITICAL_PATH",
        example="--epoch 5 --format json",
        rows="path",
        heaviest="duration_ns",
        columns=("step", "type", "worker", "to_worker", "start_ns", "duration_ns", "operator", "channel"),
        rules=_ALIGNED,
        cypher="analyses/critical_path",
        chart=Chart(kind="timeline"),
    ),
    Analysis(
        name="profile",
        across=True,
        output="PROFILE",
        parameters_name="ProfileParameters",
        example="--epoch 5 --by operator",
        columns=("by", "rank", "key", "keys", "steps", "path_ns", "share"),
        rules=_ALIGNED,
        chart=Chart(kind="bars", x=("key",), y=("path_ns",), panel="by"),
    ),
    Analysis(
        name="profile-rounds",
        across=True,
        many_name="profiles_of_rounds",
        output="PROFILE_ROUNDS",
        parameters_name="ProfileParameters",
        example="--by operator -n 5",
        module_name="profile",
        part_name="round_profile",
        scope=Scope.RUN,
        rules=_ALIGNED,
        chart=Chart(kind="bars", x=("key",), y=("p50_ns", "p99_ns"), panel="by"),
    ),
    Analysis(
        name="sample",
        output="SAMPLE",
        parameters_name="SampleParameters",
        example="--fraction 0.1 --confidence 0.95 --seed 0",
        part_name="round_facts",
        choose_name="chosen_rounds",
        scope=Scope.RUN,
        rows="estimates",
        rules=_ALIGNED,
        chart=Chart(kind="bars", x=("key",), y=("estimate",), panel="by", interval=("low", "high"), unit="unit"),
    ),
    Analysis(
        name="imbalance",
        across=True,
        output="IMBALANCE",
        parameters_name="ImbalanceParameters",
        example="--epoch 5",
        rules=_ALIGNED,
        chart=Chart(kind="bars", x=("type", "operator"), y=("path_ns", "mean_ns")),
    ),
    Analysis(
        name="slack",
        many_name="slack_of_windows",
        output="SLACK",
        parameters_name="SlackParameters",
        example="--epoch 5",
        rules=_ALIGNED,
    ),
    Analysis(
        name="what-if",
        output="WHAT_IF",
        parameters_name="WhatIfParameters",
        example="--epoch 5 --operator FlatMap --factor 0.5",
        example_values=(("worker", [0]), ("factor", 0.5)),
        rules=_ALIGNED,
        chart=Chart(kind="bars", x=("type", "worker", "operator"), y=("recorded_ns", "new_ns")),
    ),
    Analysis(
        name="causal-profile",
        many_name="causal_profile_of_windows",
        output="CAUSAL_PROFILE",
        parameters_name="CausalProfileParameters",
        example="--epoch 5",
        rules=_ALIGNED,
        chart=Chart(
            kind="lines",
            x=("virtual_speedup_percent",),
            y=("saved_percent",),
            colour=("operator", "worker", "from_worker", "to_worker"),
        ),
    ),
    Analysis(
        name="participation",
        many_name="participation_of_windows",
        output="PARTICIPATION",
        example="--epoch 5",
        rules=_ALIGNED,
        chart=Chart(kind="bars", x=("type", "operator"), y=("participation",), colour=("worker",)),
    ),
    Analysis(
        name="k-hops",
        across=True,
        many_name="k_hops_of_windows",
        output="K_HOPS",
        parameters_name="KHopsParameters",
        example="--epoch 5 -k 10",
        rows="hops",
        heaviest="walk_ns",
        chart=Chart(kind="bars", x=("hop",), y=("walk_ns",), colour=("type",)),
    ),
    Analysis(
        name="k-hops-st2",
        output="K_HOPS_ST2",
        parameters_name="KHopsSt2Parameters",
        example="-k 10 --format csv",
        scope=Scope.RUN,
        rules=_ST2,
        chart=Chart(kind="bars", x=("hop",), y=("duration_ns",), colour=("type",)),
    ),
    Analysis(
        name="metrics",
        across=True,
        many_name="metrics_of_windows",
        output="METRICS",
        example="--epoch 5 --format csv",
        heaviest="duration_ns",
        chart=Chart(kind="bars", x=("from_worker",), y=("duration_ns",), colour=("type",)),
    ),
    Analysis(
        name="matrix",
        across=True,
        output="MATRIX",
        example="--epoch 5",
        module_name="metrics",
        chart=Chart(kind="matrix", x=("to_worker",), y=("from_worker",), value="records"),
    ),
    Analysis(
        name="skew",
        across=True,
        output="SKEW",
        parameters_name="SkewParameters",
        example="--epoch 5 --above 2",
        chart=Chart(kind="bars", x=("operator",), y=("records",), colour=("worker",)),
    ),
    Analysis(
        name="invariants",
        across=True,
        many_name="observations_of_rounds",
        output="INVARIANTS",
        parameters_name="InvariantsParameters",
        example="--epoch-max-ns 1000000 --no-learn",
        part_name="round_observations",
        scope=Scope.RUN,
        rows="violations",
        alarm=True,
        chart=Chart(kind="lines", x=("epoch",), y=("observed",), colour=("invariant", "to_worker")),
    ),
    Analysis(
        name="diff",
        output="DIFF",
        example="--epoch 5 --against-epoch 4 --format markdown",
        scope=Scope.PAIR,
        rules=_ALIGNED,
        chart=Chart(kind="bars", x=("operator_name", "type", "worker", "to_worker"), y=("difference_ns",)),
    ),
    Analysis(
        name="waits",
        across=True,
        output="WAITS",
        example="--epoch 5",
        cypher="patterns/who_waits_for_whom",
        chart=Chart(kind="matrix", x=("from_worker",), y=("worker",), value="waiting_ns"),
    ),
    Analysis(
        name="blame",
        across=True,
        many_name="blame_of_windows",
        output="BLAME",
        example="--epoch 5",
        columns=("worker", "by_worker", "to_worker", "type", "operator", "channel", "waits", "blamed_ns"),
        rules=_ALIGNED,
        chart=Chart(kind="matrix", x=("by_worker",), y=("worker",), value="blamed_ns"),
    ),
    Analysis(
        name="stragglers",
        across=True,
        output="STRAGGLERS",
        parameters_name="StragglersParameters",
        example="--epoch 5 --above 1.5",
        rules=_ALIGNED,
        chart=Chart(kind="bars", x=("worker",), y=("work_ns", "waiting_ns", "blamed_ns")),
    ),
    Analysis(
        name="traffic",
        across=True,
        output="TRAFFIC",
        example="--epoch 5",
        cypher="patterns/data_messages",
        chart=Chart(kind="matrix", x=("to_worker",), y=("from_worker",), value="records"),
    ),
)
"""All analyses of this package, in the order in which they are listed."""

ENTRY_POINTS = "pag_graph.analyses"
"""Group of entry points by which other distributions add analyses: each names an `Analysis`."""


@cache
def all_analyses() -> tuple[Analysis, ...]:
    """Return the analyses of this package, and those that installed distributions add.

    Returns
    -------
    tuple of Analysis
        Those of others by name. What cannot be loaded, or takes a name that is taken, is left out with a warning.
    """
    found = list(ANALYSES)
    for entry in sorted(entry_points(group=ENTRY_POINTS), key=lambda entry: entry.name):
        try:
            analysis = entry.load()
        except Exception as error:  # noqa: BLE001  (a broken plug-in must not stop everything else)
            problem = f"cannot be loaded: {type(error).__name__}: {error}"
        else:
            problem = _problem(analysis, {known.method for known in found})
        if problem:
            where = entry.dist.name if entry.dist is not None else "an unknown distribution"
            warnings.warn(f"The analysis {entry.name!r} of {where} {problem}.", stacklevel=2)
        else:
            found.append(analysis)
    return tuple(found)


def _problem(analysis: object, taken: set[str]) -> str:
    if not isinstance(analysis, Analysis):
        return f"is no Analysis but of type {type(analysis).__name__}"
    if not re.fullmatch("[a-z][a-z0-9]*(-[a-z0-9]+)*", analysis.name):
        return f"is called {analysis.name!r}; names are lower-case words with hyphens"
    return f"is called {analysis.name!r} like another one" if analysis.method in taken else ""


def find_analysis(name: str) -> Analysis:
    """Return the analysis of a name.

    Raises
    ------
    InvalidParameterError
        If there is none; the message lists all.
    """
    for analysis in all_analyses():
        if name in {analysis.name, analysis.method}:
            return analysis
    message = f"There is no analysis {name!r}; there are {', '.join(analysis.name for analysis in all_analyses())}."
    raise InvalidParameterError(message)
