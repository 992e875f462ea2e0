"""Analyses: each one definition, used by Python, the CLI, Spark jobs and the documentation."""

from __future__ import annotations

from pag_graph.analyses.definition import Analysis, Chart, Flags, Parameter, Result, Scope, table_of
from pag_graph.errors import InvalidParameterError
from pag_graph.model.enums import RuleSet

__all__ = ["ANALYSES", "Analysis", "Chart", "Flags", "Parameter", "Result", "Scope", "find_analysis", "table_of"]

_TIMELY = frozenset({RuleSet.TIMELY})
_ST2 = frozenset({RuleSet.ST2})

ANALYSES: tuple[Analysis, ...] = (
    Analysis(
        name="critical-path",
        output="CRITICAL_PATH",
        example="--epoch 5 --format json",
        rows="path",
        heaviest="duration_ns",
        columns=("step", "type", "worker", "to_worker", "start_ns", "duration_ns", "operator", "channel"),
        rules=_TIMELY,
        cypher="analyses/critical_path",
        chart=Chart(kind="bars", x="type", y="duration_ns"),
    ),
    Analysis(
        name="profile",
        output="PROFILE",
        parameters_name="ProfileParameters",
        example="--epoch 5 --by operator",
        columns=("by", "rank", "key", "keys", "steps", "path_ns", "share"),
        rules=_TIMELY,
        chart=Chart(kind="bars", x="key", y="path_ns", colour="by"),
    ),
    Analysis(
        name="profile-rounds",
        output="PROFILE_ROUNDS",
        parameters_name="ProfileParameters",
        example="--by operator -n 5",
        module_name="profile",
        part_name="round_profile",
        scope=Scope.RUN,
        rules=_TIMELY,
        chart=Chart(kind="bars", x="key", y="p50_ns", colour="by"),
    ),
    Analysis(
        name="imbalance",
        output="IMBALANCE",
        parameters_name="ImbalanceParameters",
        example="--epoch 5",
        rules=_TIMELY,
        chart=Chart(kind="bars", x="type", y="imbalance_ns"),
    ),
    Analysis(
        name="slack",
        output="SLACK",
        parameters_name="SlackParameters",
        example="--epoch 5",
        rules=_TIMELY,
    ),
    Analysis(
        name="what-if",
        output="WHAT_IF",
        parameters_name="WhatIfParameters",
        example="--epoch 5 --operator 2 --factor 0.5",
        rules=_TIMELY,
    ),
    Analysis(
        name="causal-profile",
        output="CAUSAL_PROFILE",
        parameters_name="CausalProfileParameters",
        example="--epoch 5",
        rules=_TIMELY,
    ),
    Analysis(
        name="participation",
        output="PARTICIPATION",
        example="--epoch 5",
        rules=_TIMELY,
    ),
    Analysis(
        name="k-hops",
        output="K_HOPS",
        parameters_name="KHopsParameters",
        example="--epoch 5 -k 10",
        rows="hops",
        heaviest="walk_ns",
        chart=Chart(kind="bars", x="hop", y="walk_ns", colour="type"),
    ),
    Analysis(
        name="k-hops-st2",
        output="K_HOPS_ST2",
        parameters_name="KHopsSt2Parameters",
        example="-k 10 --format csv",
        scope=Scope.RUN,
        rules=_ST2,
        chart=Chart(kind="bars", x="hop", y="duration_ns", colour="type"),
    ),
    Analysis(
        name="metrics",
        output="METRICS",
        example="--epoch 5 --format csv",
        heaviest="duration_ns",
        chart=Chart(kind="bars", x="type", y="duration_ns", colour="from_worker"),
    ),
    Analysis(
        name="matrix",
        output="MATRIX",
        example="--epoch 5",
        module_name="metrics",
        chart=Chart(kind="matrix", x="from_worker", y="to_worker", value="records"),
    ),
    Analysis(
        name="skew",
        output="SKEW",
        parameters_name="SkewParameters",
        example="--epoch 5 --above 2",
        chart=Chart(kind="bars", x="operator_name", y="records", colour="worker"),
    ),
    Analysis(
        name="invariants",
        output="INVARIANTS",
        parameters_name="InvariantsParameters",
        example="--epoch-max-ns 1000000 --no-learn",
        part_name="round_observations",
        scope=Scope.RUN,
        rows="violations",
        chart=Chart(kind="lines", x="epoch", y="observed", colour="invariant"),
        alarm=True,
    ),
    Analysis(
        name="diff",
        output="DIFF",
        example="--epoch 5 --against-epoch 4 --format markdown",
        scope=Scope.PAIR,
        rules=_TIMELY,
        chart=Chart(kind="bars", x="operator_name", y="difference_ns", colour="type"),
    ),
    Analysis(
        name="waits",
        output="WAITS",
        example="--epoch 5",
        cypher="patterns/who_waits_for_whom",
        chart=Chart(kind="matrix", x="from_worker", y="worker", value="waiting_ns"),
    ),
    Analysis(
        name="blame",
        output="BLAME",
        example="--epoch 5",
        columns=("worker", "by_worker", "to_worker", "type", "operator", "channel", "waits", "blamed_ns"),
        rules=_TIMELY,
        chart=Chart(kind="matrix", x="by_worker", y="worker", value="blamed_ns"),
    ),
    Analysis(
        name="stragglers",
        output="STRAGGLERS",
        parameters_name="StragglersParameters",
        example="--epoch 5 --above 1.5",
        rules=_TIMELY,
        chart=Chart(kind="bars", x="worker", y="work_ns"),
    ),
    Analysis(
        name="traffic",
        output="TRAFFIC",
        example="--epoch 5",
        cypher="patterns/data_messages",
        chart=Chart(kind="matrix", x="from_worker", y="to_worker", value="records"),
    ),
)
"""All analyses, in the order in which they are listed."""


def find_analysis(name: str) -> Analysis:
    """Return the analysis of a name.

    Raises
    ------
    InvalidParameterError
        If there is none; the message lists all.
    """
    for analysis in ANALYSES:
        if name in {analysis.name, analysis.method}:
            return analysis
    message = f"There is no analysis {name!r}; there are {', '.join(analysis.name for analysis in ANALYSES)}."
    raise InvalidParameterError(message)
